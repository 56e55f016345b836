// A search while it runs: the context as a strip, and the steps as a list. It is built from the server's events alone.
"use strict";

const number = (value) => Number(value).toLocaleString("en");
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
const SMALLEST_SCALE = 4096;

/**
 * The view of one search: `{ apply({ event, data }), finish(answer), counts }`. It shows the first rollout.
 *
 * `parts` are the elements to fill: `asked`, `strip`, `axis`, `story`, `turns`, `trail`. `budget` has `window`, `soft`
 * and `hard` in tokens.
 */
function liveSearch(question, budget, parts) {
  const state = { passages: new Map(), other: 0, scale: SMALLEST_SCALE, calls: [], turn: null, names: new Set() };
  const counts = { searches: 0, patterns: 0, opened: 0, passages: 0, dropped: 0, restored: 0 };
  const rest = element("span", { class: "segment rest", title: "question, calls and notes" });
  parts.asked.replaceChildren(question);
  parts.strip.replaceChildren(rest);
  parts.turns.replaceChildren();
  parts.story.textContent = "Searching …";
  const handlers = { turn: startTurn, edit: applyEdit, result: addResult };

  function startTurn(data) {
    const used = tokensInView(state);
    state.other = Math.max(0, data.context_tokens - used);
    state.calls = data.calls.map((call) => callItem(call));
    const searching = data.calls.filter((call) => !EDITS.has(call.name));
    for (const call of searching) counts[{ search_corpus: "searches", grep_corpus: "patterns", read_document: "opened" }[call.name] || "searches"] += 1;
    for (const call of searching) state.names.add(callText(call));
    state.turn = element("li", { class: "turn" },
      element("h3", { text: `Turn ${data.turn + 1}` }),
      element("ul", { class: "calls" }, state.calls.filter(Boolean).map((item) => item.node)));
    if (!searching.length && !state.calls.some(Boolean) && !data.calls.length) return;
    parts.turns.append(state.turn);
    parts.asked.replaceChildren(...litQuestion(question, state.names));
  }

  function applyEdit(data) {
    const of = (data.summaries || []).flatMap((summary) => summary.of);
    for (const id of [...data.pruned, ...of]) mark(id, "gone", "dropped", data.turn);
    for (const id of data.restored) mark(id, "back", "brought back", data.turn);
    counts.dropped = count("dropped");
    counts.restored = count("restored");
    const lines = [[data.pruned.length, "dropped"], [of.length, "summarized"], [data.restored.length, "brought back"]].filter(([size]) => size);
    const freed = data.freed > 0 ? `, ${number(data.freed)} tokens freed` : "";
    const text = lines.map(([size, verb]) => `${counted(size, "passage")} ${verb}`).join(", ");
    if (text) (state.turn || parts.turns).append(element("p", { class: "edit", text: `${text}${freed}` }));
  }

  function addResult(data) {
    const item = state.calls[data.call];
    for (const chunk of data.chunks) addPassage(chunk, VERBS[data.name] || "search", item);
    counts.passages = state.passages.size;
    if (item) item.finish(data);
  }

  function addPassage(chunk, kind, item) {
    const title = chunk.title || chunk.document_id;
    const line = element("li", {}, element("span", { class: "name", dir: "auto", text: title }), element("span", { class: "fate" }));
    if (item) item.passages.append(line);
    const known = state.passages.get(chunk.id);
    if (known) {
      known.lines.push(line);
      return;
    }
    const node = element("span", { class: `segment ${KINDS[kind] ? kind : "search"} new`, title: `${title}, ${counted(chunk.tokens, "token")}` });
    parts.strip.append(node);
    state.passages.set(chunk.id, { document: chunk.document_id, tokens: chunk.tokens, gone: false, fates: new Set(), lines: [line], node });
  }

  function mark(id, className, verb, turn) {
    const passage = state.passages.get(id);
    if (!passage) return;
    passage.gone = className === "gone";
    passage.fates.add(passage.gone ? "dropped" : "restored");
    for (const node of [passage.node, ...passage.lines]) {
      node.classList.remove("new", "gone", "back");
      node.classList.add(className);
    }
    for (const line of passage.lines) {
      line.title = `${verb} in turn ${turn + 1}`;
      line.querySelector(".fate").replaceChildren(passage.gone ? element("span", { class: "hidden", text: `, ${line.title}` }) : ` ${line.title}`);
    }
  }

  function count(fate) {
    return [...state.passages.values()].filter((passage) => passage.fates.has(fate)).length;
  }

  function draw() {
    const used = tokensInView(state) + state.other;
    while (used > state.scale) state.scale *= 2;
    state.scale = Math.min(Math.max(state.scale, used), Math.max(budget.window, used));
    rest.style.width = `${(state.other / state.scale) * 100}%`;
    for (const passage of state.passages.values()) passage.node.style.width = passage.gone ? "0" : `${(passage.tokens / state.scale) * 100}%`;
    for (const line of parts.strip.querySelectorAll(".threshold")) line.remove();
    for (const { name, at } of thresholds(budget, state.scale)) {
      const line = element("span", { class: `threshold ${name}` });
      line.style.left = `${at * 100}%`;
      parts.strip.append(line);
    }
    const enlarged = budget.window >= 2 * state.scale ? ` (enlarged ${Math.round(budget.window / state.scale)} ×)` : "";
    const text = `${number(used)} of ${number(budget.window)} tokens in context${enlarged}`;
    parts.axis.textContent = text;
    parts.strip.setAttribute("aria-label", text);
    return used;
  }

  function apply({ event, data }) {
    if (data.rollout || !handlers[event]) return;
    handlers[event](data);
    draw();
    parts.story.textContent = `${storyOf(counts)} …`;
    if (!parts.trail.matches(":hover, :focus")) parts.trail.scrollTop = parts.trail.scrollHeight;
  }

  function finish(answer) {
    const ranks = new Map(answer.documents.map((document, at) => [document.id, at + 1]));
    for (const passage of state.passages.values()) {
      const rank = passage.gone ? undefined : ranks.get(passage.document);
      if (rank === undefined) continue;
      passage.node.classList.add("ranked");
      for (const line of passage.lines) {
        line.classList.add("ranked");
        line.prepend(element("span", { class: "rank", text: `${rank}` }), element("span", { class: "hidden", text: " in the ranking: " }));
      }
    }
    for (const item of state.calls) item?.finish();
    parts.trail.scrollTop = 0;
    parts.story.textContent = `${storyOf({ ...counts, documents: answer.documents.length })}.`;
  }

  draw();
  return { apply, finish, counts };
}

/** Return a call in the list of steps, or null for an edit, which has its own event. */
function callItem(call) {
  if (EDITS.has(call.name)) return null;
  const passages = element("ul", { class: "passages" });
  const count = element("span", { class: "muted" });
  const verb = VERBS[call.name] || call.name;
  const node = element("li", { class: "call running" },
    element("span", { class: "verb muted", text: verb }), " ",
    element("span", { class: "query", dir: "auto", text: callText(call) }), count, passages);
  const finish = (data) => {
    node.classList.remove("running");
    if (data) count.textContent = data.mistake ? ` mistake: ${plain(data.mistake.replaceAll("_", " "))}` : data.chunks.length ? "" : " nothing new";
  };
  return { node, passages, finish };
}

function callText({ arguments: values }) {
  if (typeof values === "string") return values;
  return String(values.query ?? values.pattern ?? values.document_id ?? values.doc_id ?? Object.values(values).join(" "));
}

function tokensInView(state) {
  return [...state.passages.values()].reduce((total, passage) => total + (passage.gone ? 0 : passage.tokens), 0);
}

/** Return the text in lower case. It keeps its length, so a letter such as İ, which would become two, stays. */
function inLowerCase(text) {
  return text.replace(/\p{Lu}/gu, (letter) => (letter.toLowerCase().length === letter.length ? letter.toLowerCase() : letter));
}

/** Return the question. The names in it that were searched are marked. */
function litQuestion(question, names) {
  const folded = inLowerCase(question);
  const spans = [];
  for (const name of names) {
    const at = folded.indexOf(inLowerCase(name));
    if (name.length > 1 && at >= 0 && name.length < question.trim().length - 1) spans.push([at, at + name.length]);
  }
  spans.sort(([a], [b]) => a - b);
  const nodes = [];
  let end = 0;
  for (const [from, to] of spans) {
    if (from < end) continue;
    nodes.push(plain(question.slice(end, from)), element("mark", { class: "lit", text: question.slice(from, to) }));
    end = to;
  }
  return [...nodes, plain(question.slice(end))];
}
