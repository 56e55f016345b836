// The layout of the context after each turn, as numbers. Pure functions, without access to the document.
"use strict";

const KINDS = {
  question: { letter: "Q", name: "question and instructions" },
  action: { letter: "A", name: "action" },
  search: { letter: "S", name: "search" },
  grep: { letter: "G", name: "grep" },
  read: { letter: "R", name: "read" },
  summary: { letter: "Σ", name: "summary" },
  spawn: { letter: "W", name: "searchers" },
  usage: { letter: "u", name: "usage lines and notes" },
};

/**
 * The context after each turn of a trajectory's detail: an array of
 * `{ turn, segments, leaving, restored, used, before }`.
 *
 * `segments` are in view at the end of the turn, in order; `leaving` are the blocks that its edit pruned or replaced by
 * a summary; `restored` are the keys of the blocks that it restored. A segment is `{ kind, tokens, turn, block, text }`;
 * `block` is null for segments that no edit can remove. `used` is the number of tokens in view, `before` that at the start.
 */
function contextOf(detail) {
  const record = detail.prompt.map((part) => segment("question", part.tokens, -1, null, part.text));
  const blocks = new Map(detail.blocks.map((block) => [block.key, segment(block.source, block.tokens, block.turn, block)]));
  const hidden = new Set();
  const contexts = [];
  let used = sum(record);
  for (const turn of detail.turns) {
    const before = used;
    if (turn.shown) record.push(segment("action", turn.tokens, turn.turn, null, actionText(turn)));
    const gone = turn.edit ? [...turn.edit.pruned, ...turn.edit.replaced] : [];
    const restored = turn.edit ? turn.edit.restored : [];
    for (const key of turn.edit ? turn.edit.summaries : []) record.push(blocks.get(key));
    for (const key of gone) hidden.add(key);
    for (const key of restored) hidden.delete(key);
    for (const result of turn.results) {
      for (const part of result.segments) {
        record.push(typeof part === "number" ? blocks.get(part) : segment("usage", part.tokens, turn.turn, null, part.text));
      }
    }
    if (turn.usage && turn.usage.tokens) record.push(segment("usage", turn.usage.tokens, turn.turn, null, turn.usage.text));
    const segments = record.filter((part) => part && !(part.block && hidden.has(part.block.key)));
    const leaving = gone.map((key) => blocks.get(key)).filter(Boolean);
    used = sum(segments);
    contexts.push({ turn: turn.turn, segments, leaving, restored: new Set(restored), used, before });
  }
  return contexts;
}

function segment(kind, tokens, turn, block, text = null) {
  return { kind: KINDS[kind] ? kind : "usage", tokens: Number(tokens) || 0, turn, block, text };
}

function sum(segments) {
  return segments.reduce((total, part) => total + part.tokens, 0);
}

function actionText(turn) {
  const calls = turn.results.map((result) => `${result.name} ${result.arguments.map(([, value]) => value).join(" ")}`);
  return [turn.reasoning, turn.text, ...calls].filter(Boolean).join("\n");
}

/** Return the width of a strip in tokens: the window, or less if the context never fills a third of it. */
function scaleOf(contexts, window) {
  const longest = Math.max(1, ...contexts.map((context) => context.used + sum(context.leaving)));
  if (longest * 3 > window) return Math.max(window, longest);
  return Math.ceil((longest * 1.1) / 100) * 100;
}

/** Return each segment's position as `{ segment, from, width, leaving }`, in shares of the scale. Leaving ones are last. */
function positions(context, scale) {
  let at = 0;
  const put = (leaving) => (part) => {
    const position = { segment: part, from: at / scale, width: part.tokens / scale, leaving };
    at += part.tokens;
    return position;
  };
  return [...context.segments.map(put(false)), ...context.leaving.map(put(true))];
}

/** Return the threshold lines within the scale, as `{ name, tokens, at }`. */
function thresholds(budget, scale) {
  return [["soft", budget.soft], ["hard", budget.hard], ["window", budget.window]]
    .filter(([, tokens]) => tokens <= scale)
    .map(([name, tokens]) => ({ name, tokens, at: tokens / scale }));
}

/** Return the budget tier of a context, as text. */
function tierOf(used, budget) {
  if (used >= budget.hard) return "past the hard cutoff";
  return used >= budget.soft ? "past the soft threshold" : "below the soft threshold";
}

/** Return the events of a block after it was shown: `[{ turn, what }]`, with `pruned`, `summarized` and `restored`. */
function fateOf(detail, key) {
  const fate = [];
  for (const turn of detail.turns) {
    if (turn.edit && turn.edit.pruned.includes(key)) fate.push({ turn: turn.turn, what: "pruned" });
    if (turn.edit && turn.edit.replaced.includes(key)) fate.push({ turn: turn.turn, what: "summarized" });
    if (turn.edit && turn.edit.restored.includes(key)) fate.push({ turn: turn.turn, what: "restored" });
  }
  return fate;
}

const VERBS = { search_corpus: "search", grep_corpus: "grep", read_document: "read", spawn_searchers: "spawn", prune_chunks: "prune", restore_chunks: "restore", summarize_context: "summarize" };

const EDITS = new Set(["prune_chunks", "restore_chunks", "summarize_context"]);

/** Return a turn in a few words: its calls by tool, new passages, and edits. */
function summaryOf(turn) {
  if (!turn.results.length) return turn.shown ? "no calls" : "action did not fit the window";
  const counts = new Map();
  let added = 0;
  for (const result of turn.results) {
    const verb = VERBS[result.name] || result.name;
    if (!EDITS.has(result.name)) counts.set(verb, (counts.get(verb) || 0) + 1);
    added += result.segments.filter((part) => typeof part === "number").length;
  }
  const parts = [...counts].map(([verb, count]) => (count > 1 ? `${verb} ×${count}` : verb));
  if (added) parts.push(`+${added}`);
  if (turn.edit && turn.edit.pruned.length) parts.push(`pruned ${turn.edit.pruned.length}`);
  if (turn.edit && turn.edit.replaced.length) parts.push(`summarized ${turn.edit.replaced.length}`);
  if (turn.edit && turn.edit.restored.length) parts.push(`restored ${turn.edit.restored.length}`);
  const mistakes = turn.results.filter((result) => result.mistake).length;
  if (mistakes) parts.push(`${mistakes} ⚠`);
  return parts.join(" · ") || turn.results.map((result) => VERBS[result.name] || result.name).join(" · ");
}

/** What `storyOf` tells about a trajectory's detail. Passages count once, however often they were shown or pruned. */
function countsOf(detail) {
  const chunks = new Map(detail.blocks.filter((block) => block.source !== "summary").map((block) => [block.key, block.chunk]));
  const results = detail.turns.flatMap((turn) => turn.results);
  const called = (name) => results.filter((result) => result.name === name).length;
  const edited = (of) => new Set(detail.turns.flatMap((turn) => (turn.edit ? of(turn.edit) : [])).map((key) => chunks.get(key)).filter(Boolean)).size;
  return {
    searches: called("search_corpus"),
    patterns: called("grep_corpus"),
    opened: called("read_document"),
    searchers: results.reduce((total, result) => total + result.delegated.length, 0),
    passages: new Set(chunks.values()).size,
    dropped: edited((edit) => edit.pruned),
    summarized: edited((edit) => edit.replaced),
    restored: edited((edit) => edit.restored),
    documents: detail.end ? detail.end.documents.length : undefined,
  };
}

/**
 * What an episode did, in one sentence without its full stop. `counts` has `searches` and `passages`, and may have
 * `patterns` (searches by regular expression), `opened` documents, `searchers`, the passages `dropped`, `summarized`
 * and `restored`, and the `documents` at the end.
 */
function storyOf(counts) {
  const times = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const parts = [`searched ${times(counts.searches, "time")}`];
  if (counts.patterns) parts.push(`matched ${times(counts.patterns, "pattern")}`);
  if (counts.opened) parts.push(`opened ${times(counts.opened, "document")}`);
  if (counts.searchers) parts.push(`started ${times(counts.searchers, "searcher")}`);
  parts.push(`read ${times(counts.passages, "passage")}`);
  if (counts.dropped) parts.push(`dropped ${counts.dropped.toLocaleString("en")}`);
  if (counts.summarized) parts.push(`summarized ${counts.summarized.toLocaleString("en")}`);
  if (counts.restored) parts.push(`brought ${counts.restored.toLocaleString("en")} back`);
  if (counts.documents !== undefined) parts.push(`ended with ${times(counts.documents, "document")}`);
  const story = parts.join(", ");
  return story[0].toUpperCase() + story.slice(1);
}
