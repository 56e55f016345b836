// Draws the context as strips: a thin one for every turn, and a large one with each block for the open turn.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const [STRIP_WIDTH, STRIP_HEIGHT, RESTORED_TO, GOLD_FROM, GOLD_TO] = [1000, 10, 2.5, 10.5, 13];

/** The width, as a share of the strip, from which a segment has room for its letter. */
const LEGIBLE = 0.015;

/** The number of segments above which a thin strip has almost no gaps. */
const FINE = 60;

function svgElement(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
}

/** Return a thin strip, with one path per kind of segment. */
function thinStrip(context, budget, scale) {
  const paths = new Map();
  const add = (name, from, width, top, bottom) => {
    const box = `M${(from * STRIP_WIDTH).toFixed(2)} ${top}h${(width * STRIP_WIDTH).toFixed(2)}V${bottom}h${(-width * STRIP_WIDTH).toFixed(2)}z`;
    paths.set(name, (paths.get(name) || "") + box);
  };
  for (const { segment: part, from, width, leaving } of positions(context, scale)) {
    add(leaving ? `leaving ${part.kind}` : part.kind, from, width, 0, STRIP_HEIGHT);
    if (part.block && context.restored.has(part.block.key)) add("restored", from, width, 0, RESTORED_TO);
    if (part.block && part.block.gold) add("gold", from, width, GOLD_FROM, GOLD_TO);
  }
  const strip = svgElement("svg", { class: context.segments.length > FINE ? "thin fine" : "thin", viewBox: `0 0 ${STRIP_WIDTH} ${GOLD_TO}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const [name, path] of paths) strip.append(svgElement("path", { class: name, d: path }));
  for (const line of thresholds(budget, scale)) {
    const at = Math.min(line.at * STRIP_WIDTH, STRIP_WIDTH - 0.5);
    strip.append(svgElement("line", { class: `threshold ${line.name}`, x1: at, x2: at, y1: 0, y2: GOLD_TO }));
  }
  return strip;
}

/** Return the labels of the thresholds, above the strips. */
function axis(budget, scale) {
  const lines = thresholds(budget, scale);
  const labels = lines.map((line) => {
    const label = element("span", { class: `mark ${line.name}`, text: `${line.name} ${line.tokens.toLocaleString("en")}` });
    label.style.right = `${(1 - line.at) * 100}%`;
    return label;
  });
  if (lines.length < 3) labels.push(element("span", { class: "mark scale", text: `${scale.toLocaleString("en")} tokens wide; window ${budget.window.toLocaleString("en")}` }));
  return element("div", { class: "axis", "aria-hidden": "true" }, labels);
}

/** Return the large strip, with a button per segment that calls `choose(position, button)`. */
function largeStrip(context, budget, scale, choose) {
  const buttons = positions(context, scale).map((position) => segmentButton(position, context, choose));
  if (buttons.length) buttons[0].tabIndex = 0;
  const lines = thresholds(budget, scale).map((line) => {
    const mark = element("span", { class: `threshold ${line.name}`, "aria-hidden": "true" });
    mark.style.left = `${line.at * 100}%`;
    return mark;
  });
  const strip = element("div", { class: "strip", role: "toolbar", "aria-label": `Context after turn ${context.turn + 1}` }, buttons, lines);
  strip.addEventListener("keydown", (event) => moveAlong(event, buttons));
  return strip;
}

function segmentButton(position, context, choose) {
  const { segment: part, leaving } = position;
  const { block } = part;
  const restored = block && context.restored.has(block.key);
  const classes = ["segment", part.kind, leaving && "leaving", restored && "restored", block && block.gold && "gold"];
  const button = element("button", {
    type: "button",
    class: classes.filter(Boolean).join(" "),
    tabindex: -1,
    "aria-label": segmentLabel(position, restored),
    title: segmentLabel(position, restored),
    text: position.width < LEGIBLE ? "" : `${block && block.gold ? "★" : ""}${KINDS[part.kind].letter}`,
    data: block ? { key: block.key, state: leaving ? "leaving" : restored ? "restored" : "in view" } : {},
    on: { click: () => choose(position, button) },
  });
  button.style.left = `${position.from * 100}%`;
  button.style.width = `${position.width * 100}%`;
  return button;
}

function segmentLabel({ segment: part, leaving }, restored) {
  const state = leaving ? ", removed in this turn" : restored ? ", restored in this turn" : "";
  if (!part.block) return `${KINDS[part.kind].name}, ${part.tokens} tokens`;
  const gold = part.block.gold ? ", gold" : "";
  return `${part.block.title || part.block.document} (${part.block.chunk}): ${part.kind} in turn ${part.turn + 1}, ${part.tokens} tokens${gold}${state}`;
}

/** Let Left, Right, Home and End move between segments. The strip is a single tab stop. */
function moveAlong(event, buttons) {
  const at = buttons.indexOf(document.activeElement);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  event.stopPropagation();
  if (!buttons[to]) return;
  buttons[at].tabIndex = -1;
  buttons[to].tabIndex = 0;
  buttons[to].focus();
}

/** Return the legend of colors and letters. */
function legend(gold) {
  const entries = Object.entries(KINDS).map(([kind, { letter, name }]) =>
    element("li", {}, element("span", { class: `segment ${kind}`, "aria-hidden": "true", text: letter }), ` ${name}`),
  );
  entries.push(element("li", {}, element("span", { class: "segment search leaving", "aria-hidden": "true", text: "S" }), " pruned or summarized in this turn"));
  entries.push(element("li", {}, element("span", { class: "segment search restored", "aria-hidden": "true", text: "S" }), " restored in this turn"));
  if (gold) entries.push(element("li", {}, element("span", { class: "segment search gold", "aria-hidden": "true", text: "★" }), " gold"));
  return element("ul", { class: "legend", "aria-label": "Legend" }, entries);
}
