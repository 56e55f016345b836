// Filters and orders the list, and compares two trajectories. Pure functions.
"use strict";

const ORDERS = {
  file: { name: "order of files", of: (row, number) => number },
  question: { name: "question", of: (row) => row.question },
  turns: { name: "turns", of: (row) => row.turns },
  calls: { name: "calls", of: (row) => row.calls },
  tokens: { name: "tokens", of: (row) => row.tokens },
  seconds: { name: "time", of: (row) => row.seconds },
  mistakes: { name: "mistakes", of: (row) => row.mistakes },
  pruned: { name: "pruned", of: (row) => row.pruned },
  ranked: { name: "gold ranked", of: (row) => row.ranked, gold: true },
  seen: { name: "gold seen", of: (row) => row.seen, gold: true },
  gold_pruned: { name: "gold pruned", of: (row) => row.gold_pruned, gold: true },
};

/** Return the numbers of the rows that match a filter, in its order. Rows without a value to sort by come last. */
function selectRows(rows, filter) {
  const words = (filter.text || "").toLocaleLowerCase().split(/\s+/).filter(Boolean);
  const numbers = [...rows.keys()].filter((number) => accepts(rows[number], filter, words));
  const { of } = ORDERS[filter.order] || ORDERS.file;
  const sign = filter.descending ? -1 : 1;
  return numbers.sort((a, b) => {
    const [one, other] = [of(rows[a], a), of(rows[b], b)];
    if (one === null || other === null) return (one === null) - (other === null) || a - b;
    const order = typeof one === "string" ? one.localeCompare(other) : one - other;
    return order * sign || a - b;
  });
}

function accepts(row, filter, words) {
  if (filter.stop && row.stop !== filter.stop) return false;
  if (filter.run && row.run !== filter.run) return false;
  if (filter.least !== null && filter.least !== undefined && row.turns < filter.least) return false;
  if (filter.most !== null && filter.most !== undefined && row.turns > filter.most) return false;
  if (filter.recall !== null && filter.recall !== undefined && !(row.ranked !== null && row.ranked * 100 <= filter.recall)) return false;
  if (filter.goldPruned && !row.gold_pruned) return false;
  if (filter.mistakes && !row.mistakes) return false;
  if (filter.problems && !row.problem && row.stop !== "cut") return false;
  if (!words.length) return true;
  const text = [row.question, row.question_id, row.id, row.run, row.file, row.policy, row.stop, ...row.queries].join("\n").toLocaleLowerCase();
  return words.every((word) => text.includes(word));
}

/** Return the other rows, in order of interest for a comparison. Rows with the same question come first. */
function partners(rows, number) {
  const others = [...rows.keys()].filter((other) => other !== number);
  const same = others.filter((other) => sameQuestion(rows[number], rows[other]));
  const foreign = (other) => (rows[other].run === rows[number].run ? 1 : 0);
  same.sort((a, b) => foreign(a) - foreign(b) || a - b);
  return { same, rest: others.filter((other) => !same.includes(other)) };
}

function sameQuestion(one, other) {
  if ((one.parent === null) !== (other.parent === null)) return false;
  const folded = (text) => text.trim().replace(/\s+/g, " ").toLocaleLowerCase();
  if (folded(one.question) === folded(other.question)) return true;
  return one.question_id !== null && one.question_id === other.question_id;
}

/** Return the differences of two trajectories: `{ ranking, onlyA, onlyB, both, callsA, callsB }`. */
function differences(a, b) {
  const [seenA, seenB] = [seenDocuments(a), seenDocuments(b)];
  const [callsA, callsB] = [callLines(a), callLines(b)];
  return {
    ranking: rankings(a, b),
    onlyA: [...seenA.values()].filter((document) => !seenB.has(document.id)),
    onlyB: [...seenB.values()].filter((document) => !seenA.has(document.id)),
    both: [...seenA.keys()].filter((id) => seenB.has(id)).length,
    callsA: [...callsA].filter((line) => !callsB.has(line)),
    callsB: [...callsB].filter((line) => !callsA.has(line)),
  };
}

function rankings(a, b) {
  const found = new Map();
  for (const [side, detail] of [["a", a], ["b", b]]) {
    (detail.end ? detail.end.documents : []).forEach((document, place) => {
      const entry = found.get(document.id) || { id: document.id, title: document.title, gold: false, a: null, b: null };
      entry[side] = place + 1;
      entry.gold = entry.gold || document.gold;
      found.set(document.id, entry);
    });
  }
  const best = (entry) => Math.min(entry.a ?? Infinity, entry.b ?? Infinity);
  return [...found.values()].sort((one, other) => best(one) - best(other) || (one.a ?? Infinity) - (other.a ?? Infinity));
}

function seenDocuments(detail) {
  const seen = new Map();
  for (const block of detail.blocks) {
    const known = seen.get(block.document) || { id: block.document, title: block.title, gold: false };
    known.gold = known.gold || block.gold;
    seen.set(block.document, known);
  }
  return seen;
}

function callLines(detail) {
  const searching = (result) => !EDITS.has(result.name);
  const line = (result) => `${VERBS[result.name] || result.name} ${result.arguments.map(([, value]) => value).join(" ")}`;
  return new Set(detail.turns.flatMap((turn) => turn.results.filter(searching).map(line)));
}
