// The search page. It sends the question, and shows the search while it runs and then the ranking.
// The browser keeps past questions.
"use strict";

const byId = (id) => document.getElementById(id);
const LAST = "ctx1-last";
const SKELETONS = 3;

const page = { agent: null, running: null };

const say = (text) => { byId("status").textContent = text; };
const pastName = () => `ctx1-past:${page.agent.title}`;

function fail(error) {
  byId("problem").replaceChildren(error ? element("p", { class: "problems", text: error.message }) : "");
}

function settingsOf() {
  const form = byId("ask");
  return { question: form.question.value.trim(), k: Number(form.k.value), effort: form.effort.value || null, filters: filtersOf(form) };
}

function fill({ question, k, effort, filters }) {
  const form = byId("ask");
  form.question.value = question;
  if (k) form.k.value = k;
  if (effort && [...form.effort.options].some((option) => option.value === effort)) form.effort.value = effort;
  byId("filters").replaceChildren(...filters.map((filter) => filterRow(filter, () => {})));
}

function parts() {
  return { asked: byId("asked"), strip: byId("strip"), axis: byId("axis"), story: byId("story"), turns: byId("turns"), trail: byId("trail") };
}

async function ask(settings) {
  page.running?.abort();
  const running = new AbortController();
  page.running = running;
  remember(settings);
  start(settings);
  const events = [];
  try {
    const { question, k, effort, filters } = settings;
    const where = whereOf(filters);
    const body = { question, k, stream: true, ...(effort ? { effort } : {}), ...(where ? { where } : {}) };
    const live = liveSearch(question, page.agent, parts());
    const response = await postJson("v1/retrieve", body, { signal: running.signal });
    for await (const entry of eventsOf(response)) {
      if (entry.event === "error") throw new ServerError(entry.data.error.message, entry.data.error.code);
      if (entry.event === "end") return showAnswer(live, settings, entry.data, events);
      events.push(entry);
      live.apply(entry);
    }
    throw new ServerError(LOST, "lost");
  } catch (error) {
    if (page.running === running) stopped(error);
  } finally {
    if (page.running === running) setRunning(null);
  }
}

function start(settings) {
  fail(null);
  setRunning(page.running);
  say("Searching");
  for (const id of ["live", "columns"]) byId(id).hidden = false;
  byId("past").hidden = true;
  byId("verdict").replaceChildren();
  byId("judgeall").replaceChildren();
  byId("episode").replaceChildren();
  byId("ranking").replaceChildren(...Array.from({ length: SKELETONS }, () => element("li", { class: "card skeleton", "aria-hidden": "true" })));
  document.body.dataset.state = "running";
}

function setRunning(running) {
  page.running = running;
  byId("go").textContent = running ? "Stop" : "Ask";
}

function stopped(error) {
  const cancelled = error.name === "AbortError";
  if (!cancelled) fail(error);
  byId("ranking").replaceChildren();
  byId("columns").hidden = true;
  byId("live").hidden = true;
  say(cancelled ? "Stopped" : "");
  document.body.dataset.state = "stopped";
  showPast();
}

function showAnswer(live, settings, answer, events) {
  live.finish(answer);
  const { documents } = answer;
  const actions = { filter: addFilter, judge: answer.trajectory ? (row, relevant) => judgeDocument(answer, row.id, relevant) : null };
  byId("verdict").replaceChildren(verdictOf(answer) || "");
  byId("ranking").replaceChildren(...documents.map((row, at) => rankedDocument(row, at + 1, answer.confidence !== null, actions)));
  byId("judgeall").replaceChildren(...(answer.trajectory && documents.length ? [
    element("p", { text: "Does this answer your question?" }),
    judgment("Judge the whole answer", [["Yes", "yes", 5], ["No", "no", 1]], (rating) => sendJudgment({ trajectory: answer.trajectory, rating }))] : []));
  byId("episode").replaceChildren(episodeLink(answer));
  suggestFields(documents);
  const time = `${answer.usage.seconds.toFixed(1)} seconds`;
  byId("answerhead").replaceChildren("Ranking", element("span", { class: "muted", text: confidenceText(answer) }));
  say(documents.length ? `${counted(documents.length, "document")} in ${time}. First: ${plain(documents[0].title || documents[0].id)}` : "Nothing was found");
  // If the storage is full, an older answer must not come back in place of this one.
  ofTab.removeItem(LAST);
  store(ofTab, LAST, { agent: page.agent, settings, answer, events });
  document.body.dataset.state = "answered";
  showPast();
}

function confidenceText({ confidence, usage }) {
  const sure = confidence === null ? "" : `, confidence ${percentOf(confidence)}`;
  return ` ${usage.seconds < 10 ? usage.seconds.toFixed(1) : Math.round(usage.seconds)} s${sure}`;
}

function episodeLink(answer) {
  if (answer.trajectory) return element("a", { href: `episodes/${encodeURIComponent(answer.trajectory)}`, text: "View the recorded episode" });
  return element("span", { class: "muted", text: "Episodes are not recorded: start the server with --save FOLDER to view and judge them." });
}

/** Collect field names for the filters from the metadata that answers showed. */
function suggestFields(documents) {
  const list = byId("fields");
  const names = new Set([...list.options].map((option) => option.value));
  for (const row of documents) for (const name of Object.keys(row.metadata)) names.add(name);
  list.replaceChildren(...[...names].sort().map((value) => element("option", { value })));
}

function addFilter(field = "", value = "") {
  const row = filterRow({ field, operator: "$eq", value }, () => {});
  byId("filters").append(row);
  (field ? byId("go") : row.querySelector("input")).focus();
  if (field) say(`Filter added: ${field} is ${value}`);
}

function judgeDocument(answer, id, relevant) {
  return sendJudgment({ trajectory: answer.trajectory, relevant: relevant ? [id] : [], irrelevant: relevant ? [] : [id] });
}

/** Return true if the server stored the judgment. */
async function sendJudgment(verdict) {
  try {
    await postJson("v1/feedback", { ...verdict, user: judge(), id: `page-${randomName()}` });
    fail(null);
    say("Your judgment is recorded");
    return true;
  } catch (error) {
    fail(error);
    return false;
  }
}

function remember(settings) {
  store(ofBrowser, pastName(), remembered(stored(ofBrowser, pastName(), []), settings));
  store(ofBrowser, "ctx1-settings", { k: settings.k, effort: settings.effort });
}

function showPast() {
  const past = stored(ofBrowser, pastName(), []);
  byId("past").hidden = !past.length;
  byId("questions").replaceChildren(...past.map((entry) => {
    const filters = entry.filters.map(({ field, operator, value }) => `${field} ${OPERATORS.find(([key]) => key === operator)[1]} ${value}`).join(", ");
    return element("li", {}, element("button", { type: "button", class: "again", dir: "auto", on: { click: () => {
      fill(entry);
      scrollTo({ top: 0 });
      byId("question").focus();
      ask(settingsOf());
    } } }, element("span", { text: entry.question }), filters ? element("span", { class: "muted", text: ` ${filters}` }) : null));
  }));
}

function showAgent(agent) {
  page.agent = agent;
  document.title = `Ask ${plain(agent.title)}`;
  byId("title").textContent = plain(agent.title);
  byId("size").textContent = counted(agent.chunks, "passage");
  byId("efforts").hidden = agent.efforts.length < 2;
  byId("effort").replaceChildren(...agent.efforts.map((name) => element("option", { value: name, text: name })));
}

/** Show the answer that this tab showed last, for example after a visit to an episode. */
async function restoreLast() {
  const last = stored(ofTab, LAST, null);
  if (!last || !(await isOfThisServer(last)) || page.running) return;
  fill(last.settings);
  start(last.settings);
  const live = liveSearch(last.settings.question, page.agent, parts());
  last.events.forEach(live.apply);
  showAnswer(live, last.settings, last.answer, last.events);
  say("");
}

/** Return true if the answer is from the documents of this server. Another server may have had its address before. */
async function isOfThisServer({ agent, answer }) {
  if (!answer.trajectory) return agent.title === page.agent.title && agent.corpus === page.agent.corpus;
  return request(`v1/trajectories/${encodeURIComponent(answer.trajectory)}`, { method: "HEAD" }).then(() => true, () => false);
}

function listen() {
  const form = byId("ask");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (page.running) page.running.abort();
    else if (page.agent && form.question.value.trim()) ask(settingsOf());
  });
  form.question.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!page.running) form.requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && page.running) page.running.abort();
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    event.preventDefault();
    form.question.focus();
  });
  byId("addfilter").addEventListener("click", () => addFilter());
  byId("clear").addEventListener("click", () => {
    store(ofBrowser, pastName(), []);
    showPast();
    form.question.focus();
    say("Past questions are forgotten");
  });
}

/** Show what the browser kept. If another version of the page stored it in another form, forget it. */
async function restore() {
  try {
    fill({ question: "", filters: [], ...stored(ofBrowser, "ctx1-settings", {}) });
    showPast();
    await restoreLast();
  } catch {
    for (const name of [pastName(), "ctx1-settings"]) ofBrowser.removeItem(name);
    ofTab.removeItem(LAST);
    for (const id of ["live", "columns"]) byId(id).hidden = true;
    showPast();
  }
}

async function open() {
  listen();
  try {
    showAgent(await getJson("v1/agent"));
    await restore();
  } catch (error) {
    fail(error);
  }
  document.documentElement.dataset.ready = "";
  byId("question").focus();
}

open();
