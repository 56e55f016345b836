// The page on which a judge accepts or rejects tasks. Foreign text goes through `element(…, { text })`, never into HTML.
"use strict";

(async () => {
  const review = await pageData("review");
  const key = `ctx1-review:${review.key}`;
  const taskIds = new Set(review.tasks.map((task) => task.id));
  const at = (id) => document.getElementById(id);
  /** The judgments by task id: { verdict: "accept" | "reject" | null, comment }. It is a Map, because an id may be any string. */
  const judgments = new Map();
  let position = 0;

  // Progress survives closing the page. If the browser stores nothing for files, a message says so, and the rest works.
  function load() {
    try {
      const kept = JSON.parse(localStorage.getItem(key) ?? "null");
      if (kept === null) return;
      at("judge").value = kept.judge;
      position = Math.min(Math.max(0, kept.position), review.tasks.length - 1);
      for (const [id, judgment] of kept.judgments) if (taskIds.has(id)) judgments.set(id, judgment);
    } catch {
      showStatus("This browser has no stored progress for the page. Download your judgments before you close it.");
    }
  }

  function save() {
    try {
      localStorage.setItem(key, JSON.stringify({ judge: at("judge").value, position, judgments: [...judgments] }));
    } catch {
      showStatus("This browser does not store progress for the page. Download your judgments before you close it.");
    }
  }

  function showStatus(text) {
    at("status").textContent = plain(text);
  }

  const judged = (id) => judgments.get(id) ?? { verdict: null, comment: "" };

  function judge(verdict) {
    const id = review.tasks[position].id;
    const before = judged(id);
    judgments.set(id, { ...before, verdict: before.verdict === verdict ? null : verdict });
    save();
    updateMarks();
  }

  function go(to) {
    if (to < 0 || to >= review.tasks.length) return;
    position = to;
    save();
    show();
    window.scrollTo(0, 0);
  }

  /** Update the task list, the buttons and the counts. */
  function updateMarks() {
    const verdicts = review.tasks.map((task) => judged(task.id).verdict);
    [...at("tasks").children].forEach((item, index) => {
      const button = item.firstChild;
      button.dataset.verdict = verdicts[index] ?? "";
      button.setAttribute("aria-current", String(index === position));
      button.setAttribute("aria-label", `Task ${index + 1}${verdicts[index] ? `, ${verdicts[index]}ed` : ""}`);
    });
    for (const button of document.querySelectorAll(".verdict button")) {
      button.setAttribute("aria-pressed", String(button.dataset.verdict === verdicts[position]));
    }
    const count = (verdict) => verdicts.filter((item) => item === verdict).length;
    const remaining = count(null);
    at("count").textContent = `${count("accept")} accepted, ${count("reject")} rejected, ${remaining} left`;
  }

  const parts = (segments) =>
    segments.map(([text, kind]) => (kind ? element("mark", { class: kind, text }) : element("span", { text })));

  const label = (item) => (item.title && item.title !== item.id ? `${item.title} (${item.id})` : item.id);

  function supporting(item) {
    return element(
      "article",
      {},
      element("h4", { text: label(item) + (item.truth ? ", marked as stating the answer" : "") }),
      item.found ? element("p", { class: "text" }, parts(item.segments)) : element("p", { class: "bad", text: "Not in the index." }),
      item.lost.map((quote) => element("p", { class: "bad", text: `Quote not found in it: ${quote}` })),
    );
  }

  function distractor(item) {
    return element(
      "details",
      { open: item.answer },
      element("summary", { class: item.answer ? "bad" : null, text: label(item) + (item.answer ? ": states the answer" : "") }),
      item.found ? element("p", { class: "text" }, parts(item.segments)) : element("p", { class: "bad", text: "Not in the index." }),
    );
  }

  function show() {
    const task = review.tasks[position];
    const kinds = [task.type, task.hops ? `${task.hops} hops` : "", task.domain, task.origin].filter(Boolean).join(", ");
    const comment = element("textarea", { id: "comment", "aria-label": "Comment", placeholder: "Comment (c)" });
    comment.value = judged(task.id).comment;
    comment.addEventListener("input", () => {
      judgments.set(task.id, { ...judged(task.id), comment: comment.value });
      save();
    });
    const button = (verdict, label) =>
      element("button", { type: "button", data: { verdict }, on: { click: () => judge(verdict) }, text: label });
    const content = element(
      "div",
      {},
      element("p", { class: "muted", text: `Task ${position + 1} of ${review.tasks.length}: ${task.id}${kinds ? ` (${kinds})` : ""}` }),
      element("p", { class: "question", text: task.question }),
      element("p", {}, element("strong", { text: "Answer: " }), element("span", { text: task.answer || "none given" })),
      element("p", { class: "verdict" }, button("accept", "Accept (a)"), " ", button("reject", "Reject (r)")),
      comment,
      task.clues.length ? [element("h3", { text: "Clues" }), element("p", { class: "text" }, parts(task.clues))] : null,
      element("h3", { text: "Supporting documents" }),
      task.supporting.map(supporting),
      task.distractors.length ? element("h3", { text: "Distractors" }) : null,
      task.distractors.map(distractor),
    );
    at("task").replaceChildren(content);
    updateMarks();
  }

  /** Return the judgments as JSONL, in the page's order. */
  function lines() {
    const judge = at("judge").value.trim();
    const rows = review.tasks.filter((task) => judged(task.id).verdict || judged(task.id).comment);
    return rows.map((task) => `${JSON.stringify({ task: task.id, judge, ...judged(task.id), sheet: review.key })}\n`).join("");
  }

  function download() {
    const address = URL.createObjectURL(new Blob([lines()], { type: "application/jsonl" }));
    const who = at("judge").value.trim().replace(/[^\p{L}\p{N}._-]+/gu, "-") || "judgments";
    element("a", { href: address, download: `${who}.jsonl` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    showStatus(`Written: ${who}.jsonl`);
  }

  async function importFile(file) {
    let imported = 0;
    let skipped = 0;
    for (const line of (await file.text()).split("\n").filter((item) => item.trim())) {
      let row = null;
      try {
        row = JSON.parse(line);
      } catch {
        // The line is counted below as one that is not a judgment.
      }
      const fits = taskIds.has(row?.task) && [null, "accept", "reject"].includes(row.verdict ?? null);
      if (fits) judgments.set(row.task, { verdict: row.verdict ?? null, comment: String(row.comment ?? "") });
      if (fits && !at("judge").value && typeof row.judge === "string") at("judge").value = row.judge;
      if (fits) imported += 1;
      else skipped += 1;
    }
    save();
    show();
    showStatus(`${imported} judgments imported${skipped ? `, ${skipped} lines skipped` : ""}.`);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (["INPUT", "TEXTAREA"].includes(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const acts = {
      j: () => go(position + 1),
      k: () => go(position - 1),
      a: () => judge("accept"),
      r: () => judge("reject"),
      c: () => at("comment").focus(),
    };
    if (Object.hasOwn(acts, event.key)) {
      event.preventDefault();
      acts[event.key]();
    }
  }

  load();
  at("tasks").append(
    ...review.tasks.map((_, index) =>
      element("li", {}, element("button", { type: "button", on: { click: () => go(index) }, text: String(index + 1) })),
    ),
  );
  at("judge").addEventListener("input", save);
  at("download").addEventListener("click", download);
  at("import").addEventListener("change", async (event) => {
    for (const file of event.target.files) await importFile(file);
    event.target.value = "";
  });
  document.addEventListener("keydown", onKey);
  show();
  document.documentElement.dataset.ready = "";
})();
