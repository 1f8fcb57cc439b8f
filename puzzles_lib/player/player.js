// Plays a recorded run of a kernel. Written by hand, in two halves: what is true at a step (plain functions on
// what `packing.py` packed, tested under node), and what of it is shown (one class, `Stage`).

// ---- reading what was packed

/** Return the tree of a run, whose arrays are still packed. text: base64 of a zlib stream. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(whole.buffer).getUint32(0, true);
  const run = JSON.parse(new TextDecoder().decode(whole.subarray(4, 4 + size)));
  run.blob = whole.subarray(4 + size);
  run.read = new Map();
  return run;
}

const WORDS = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const TYPED = {
  u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, i4: Int32Array,
  f4: Float32Array, f8: Float64Array, u8: BigUint64Array, i8: BigInt64Array,
};

function plain(value) {
  return typeof value === "string" ? (WORDS[value] ?? BigInt(value)) : value;
}

/** Return the array with a number: {shape, data}. */
function arrayOf(run, number) {
  if (!run.read.has(number)) run.read.set(number, readArray(run, run.arrays[number]));
  return run.read.get(number);
}

function readArray(run, [kind, shape, first, steps]) {
  const size = shape.reduce((a, b) => a * b, 1);
  if (kind === "c") return { shape, data: new Array(size).fill(plain(first)) };
  if (kind === "a") {
    let data = [first];
    shape.forEach((count, axis) => {
      const wider = new Array(data.length * count);
      data.forEach((start, i) => {
        for (let place = 0; place < count; place++) wider[i * count + place] = start + place * steps[axis];
      });
      data = wider;
    });
    return { shape, data };
  }
  if (kind === "b") {
    const data = new Array(size);
    for (let i = 0; i < size; i++) data[i] = ((run.blob[first + (i >> 3)] >> (i & 7)) & 1) === 1;
    return { shape, data };
  }
  const data = new TYPED[kind](size);
  const out = new Uint8Array(data.buffer);
  const width = data.BYTES_PER_ELEMENT;
  for (let plane = 0; plane < width; plane++) {
    for (let i = 0; i < size; i++) out[i * width + plane] = run.blob[first + plane * size + i];
  }
  return { shape, data };
}

/** Return the index along each axis of an element with a flat index. */
function coordinates(shape, index) {
  const places = new Array(shape.length);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    places[axis] = index % shape[axis];
    index = Math.floor(index / shape[axis]);
  }
  return places;
}

/** Return the flat index in an array that is broadcast to a larger shape, as in NumPy. */
function spread(shape, lanes, index) {
  const places = coordinates(lanes, index).slice(lanes.length - shape.length);
  return shape.reduce((flat, size, axis) => flat * size + (size === 1 ? 0 : places[axis]), 0);
}

// ---- words for values

function numberText(value, digits = 5) {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "bigint") return String(value);
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return Object.is(value, -0) ? "-0" : String(value);
  const text = value.toPrecision(digits);
  if (text.includes("e")) return text.replace(/\.?0+e/, "e");
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Return ``x[3, 17]``; outside of the tensor ``x + 912``, with the flat index. */
function address(tensor, element) {
  const size = tensor.shape.reduce((a, b) => a * b, 1);
  if (element < 0) return `${tensor.name} - ${-element}`;
  if (element >= size) return `${tensor.name} + ${element}`;
  return `${tensor.name}[${coordinates(tensor.shape, element).join(", ")}]`;
}

/** Return what a value is, in words: ``float32 [32]``. */
function kindText(run, value) {
  if (value.text !== undefined) return "constant";
  const shape = isBlock(value) ? ` [${arrayOf(run, value.a).shape.join(", ")}]` : "";
  return (value.to === undefined ? value.dtype : `pointer to ${value.dtype}`) + shape;
}

/** Whether a value is a block. Blocks have the number of an array, scalars their value. */
function isBlock(value) {
  return value.a !== undefined;
}

// ---- what is true at a step

function statementOf(run, program, step) {
  return step.k === undefined ? null : functionOf(run, program, step).statements[step.k];
}

function functionOf(run, program, step) {
  return run.functions[program.frames[step.f][0]];
}

/** Return the first and last line of a step, counted from 1 in the function's source. */
function linesOf(run, program, step) {
  const statement = statementOf(run, program, step);
  if (statement) return [statement[0], statement[1]];
  const lines = functionOf(run, program, step).lines;
  const last = lines.findIndex((line) => line.split("#")[0].trimEnd().endsWith(":"));
  return [1, last + 1 || 1];
}

/** Return the values of a frame's names before a step. */
function namesBefore(program, at, frame) {
  const names = new Map();
  for (const step of program.steps.slice(0, at)) {
    if (step.f === frame) for (const [name, value] of step.w ?? []) if (name !== "return") names.set(name, value);
  }
  return names;
}

/** Return the names that a step shows, the changed ones first: [{name, value, role}]; was: the value before. */
function namesAt(run, program, at) {
  const step = program.steps[at];
  const before = namesBefore(program, at, step.f);
  const statement = statementOf(run, program, step);
  const reads = statement ? statement[2] : [];
  const changed = (step.w ?? []).map(([name, value]) => ({ name, value, role: "changed", was: before.get(name) }));
  const written = new Set(changed.map((each) => each.name));
  const read = reads.filter((name) => before.has(name)).map((name) => {
    const label = written.has(name) ? `${name}, before` : name;
    return { name: label, value: before.get(name), role: "read" };
  });
  return [...changed, ...read].flatMap((each) => parts(run, each));
}

/** Return in how many lanes a name changes: [changed, lanes]; null if it had no value of this shape before.
 * 0 and -0 are equal, and so are two NaNs. */
function lanesChanged(run, { value, was }) {
  const [now, old] = [value, was].map((number) => run.values[number]);
  if (!now || !old || !isBlock(now) || !isBlock(old) || now.dtype !== old.dtype) return null;
  const [after, before] = [now, old].map((each) => arrayOf(run, each.a));
  const same = (a, b) => a === b || Object.is(a, b);
  if (after.data.length !== before.data.length || String(after.shape) !== String(before.shape)) return null;
  let count = 0;
  for (let i = 0; i < after.data.length; i++) count += same(after.data[i], before.data[i]) ? 0 : 1;
  return [count, after.data.length];
}

/** Return the parts of a tuple one by one. */
function parts(run, each) {
  const value = run.values[each.value];
  if (!value.parts) return [each];
  return value.parts.flatMap((part, i) =>
    parts(run, { ...each, name: `${each.name}[${i}]`, value: part, was: run.values[each.was]?.parts?.[i] }));
}

/** Return the iterations of the loops around a step, by line: Map line -> [iteration, of]. */
function turnsAt(run, program, at) {
  const step = program.steps[at];
  const turns = new Map();
  const statement = statementOf(run, program, step);
  const loops = statement ? [...statement[4], ...(step.t ? [step.k] : [])] : [];
  for (const loop of loops) {
    for (let i = at; i >= 0; i--) {
      const each = program.steps[i];
      if (each.f === step.f && each.k === loop && each.t) {
        turns.set(functionOf(run, program, step).statements[loop][0], each.t);
        break;
      }
    }
  }
  return turns;
}

/** Return the frames from the kernel to a step's own, each with the line of its call. */
function callers(run, program, at) {
  const found = [];
  let frame = program.frames[program.steps[at].f][1];
  let i = at;
  while (frame >= 0) {
    while (i < program.steps.length && program.steps[i].f !== frame) i++;
    if (i < program.steps.length) {
      const step = program.steps[i];
      found.unshift({ name: functionOf(run, program, step).name, line: linesOf(run, program, step)[0], step });
    }
    frame = program.frames[frame][1];
  }
  return found;
}

/** Return everything stored up to and including a step: for each tensor Map element -> [value, state]. */
function storedAt(run, place, at) {
  const stored = run.tensors.map(() => new Map());
  const take = (tensor, { i, v, r }) => {
    const elements = arrayOf(run, i).data;
    const values = arrayOf(run, v).data;
    const states = arrayOf(run, r).data;
    for (let lane = 0; lane < elements.length; lane++) {
      stored[tensor].set(Number(elements[lane]), [values[lane], states[lane]]);
    }
  };
  for (let number = 0; number <= place; number++) {
    const program = run.programs[number];
    for (const each of program.before) take(each.T, each);
    const steps = number < place ? program.steps : program.steps.slice(0, at + 1);
    for (const step of steps) for (const access of step.a ?? []) if (access.s) take(access.T, access.s);
  }
  return stored;
}

/** Return the terms of an access's mask that are false for a lane. */
function switchedOffBy(run, access, lane) {
  const lanes = arrayOf(run, access.i).shape;
  return (access.terms ?? []).filter(([, number]) => {
    const { shape, data } = arrayOf(run, number);
    return !data[data.length === 1 ? 0 : spread(shape, lanes, lane)];
  }).map(([text]) => text);
}

/** Return a lane of an access in words. */
function laneText(run, access, lane) {
  const tensor = run.tensors[access.T];
  const { shape, data } = arrayOf(run, access.i);
  const where = tensor ? address(tensor, Number(data[lane])) : "?";
  const place = `lane [${coordinates(shape, lane).join(", ")}]`;
  if (access.m !== undefined && !arrayOf(run, access.m).data[lane]) {
    const terms = switchedOffBy(run, access, lane);
    const why = terms.length ? `${terms.join(" and ")} ${terms.length > 1 ? "are" : "is"} False` : "its mask is False";
    return `${place}: masked off, because ${why}; its address is ${where}`;
  }
  if (access.b !== undefined && arrayOf(run, access.b).data[lane]) {
    const size = tensor.shape.reduce((a, b) => a * b, 1);
    return `${place}: out of bounds at ${where}; ${tensor.name} has ${size} elements`;
  }
  return access.k === "store" ? `${place} stores to ${where}` : `${place}: ${where}`;
}

// ---- where to go: the place of a step; null if there is none

/** Return the next place in a direction (1 or -1) that `fits`. */
function next(program, at, direction, fits) {
  for (let i = at + direction; i >= 0 && i < program.steps.length; i += direction) {
    if (fits(program.steps[i], i)) return i;
  }
  return null;
}

function nextAccess(program, at, direction) {
  return next(program, at, direction, (step) => Boolean(step.a));
}

function nextChange(program, at, direction, name) {
  return next(program, at, direction, (step) => (step.w ?? []).some(([each]) => each === name));
}

/** Return the innermost loop around a step, or the loop whose iteration it begins; null outside of loops. */
function loopAround(run, program, at) {
  const step = program.steps[at];
  const statement = statementOf(run, program, step);
  if (!statement) return null;
  if (statement[5] === "loop" && step.t) return step.k;
  return statement[4].length ? statement[4][statement[4].length - 1] : null;
}

/** Return the place after or before the innermost loop; outside of loops, past the next one; else null. */
function overLoop(run, program, at, direction) {
  const inside = (i, frame, loop) => {
    const step = program.steps[i];
    if (step.f !== frame) return below(program, step.f, frame);
    const statement = statementOf(run, program, step);
    return Boolean(statement) && ((step.k === loop && Boolean(step.t)) || statement[4].includes(loop));
  };
  let from = at;
  let loop = loopAround(run, program, at);
  if (loop === null) {
    from = next(program, at, direction, (step, i) => loopAround(run, program, i) !== null);
    if (from === null) return null;
    loop = outermost(run, program, from);
  }
  const frame = program.steps[from].f;
  return next(program, from, direction, (step, i) => !inside(i, frame, loop));
}

function outermost(run, program, at) {
  const statement = statementOf(run, program, program.steps[at]);
  return statement[4].length ? statement[4][0] : program.steps[at].k;
}

/** Whether a frame was called, directly or not, from another. */
function below(program, frame, above) {
  while (frame >= 0 && frame !== above) frame = program.frames[frame][1];
  return frame === above;
}

const WRONG = 2;
const UNDEFINED = 4;
const RACE = 5;

/** Return where a wrong value is first stored, over all programs: [program, step]; null if none is. */
function firstWrong(run) {
  for (let place = 0; place < run.programs.length; place++) {
    const steps = run.programs[place].steps;
    for (let at = 0; at < steps.length; at++) {
      const stores = (steps[at].a ?? []).filter((access) => access.s);
      const states = stores.flatMap((access) => [...arrayOf(run, access.s.r).data]);
      if (states.some((state) => state === WRONG || state === UNDEFINED || state === RACE)) return [place, at];
    }
  }
  return null;
}

/**
 * Return where the value of a step that stores an undefined one first becomes undefined: its program and step.
 * In a block of the stored shape, only the stored lanes count. In others, lanes that their load masked off don't.
 */
function firstUndefined(run, [place, at]) {
  const program = run.programs[place];
  const stored = (program.steps[at].a ?? []).filter((access) => access.s && run.values[access.v].u !== undefined);
  if (!stored.length) return [place, at];
  const lanes = stored.flatMap((access) => {
    const { shape, data } = arrayOf(run, run.values[access.v].u);
    const mask = access.m === undefined ? null : arrayOf(run, access.m).data;
    return [...data].map((from, lane) => ({ shape: String(shape), lane, from }))
      .filter(({ lane, from }) => from && (!mask || mask[mask.length === 1 ? 0 : lane]));
  });
  const causes = new Set(lanes.map(({ from }) => from));
  const hit = new Set(lanes.map(({ shape, lane }) => `${shape}/${lane}`));
  const shapes = new Set(lanes.map(({ shape }) => shape));
  const spoilt = (number) => {
    const value = run.values[number];
    if (value.parts) return value.parts.some(spoilt);
    if (value.u === undefined) return false;
    const { shape, data } = arrayOf(run, value.u);
    const off = value.o === undefined ? null : arrayOf(run, value.o).data;
    const alike = shapes.has(String(shape));
    return [...data].some((from, lane) => causes.has(from) && (alike ? hit.has(`${shape}/${lane}`) : !off?.[lane]));
  };
  const first = program.steps.findIndex((step) => (step.w ?? []).some(([, number]) => spoilt(number)));
  return first >= 0 && first < at ? [place, first] : [place, at];
}

/** Return the first problem that is not a wrong value: a lane out of bounds, or the end of a run that broke. */
function firstProblem(run) {
  for (let place = 0; place < run.programs.length; place++) {
    const at = run.programs[place].steps.findIndex((step) => step.e);
    if (at >= 0) return [place, at];
  }
  return null;
}

/** Return the smallest and largest of the finite numbers: [low, high]; null if there are none. */
function range(data, skip = () => false) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < data.length; i++) {
    const value = Number(data[i]);
    if (typeof data[i] === "boolean" || !Number.isFinite(value) || skip(i)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** Return the smallest and largest of any number of numbers; [] if there are none. */
function ends(numbers) {
  let [low, high] = [];
  for (const each of numbers) {
    if (low === undefined || each < low) low = each;
    if (high === undefined || each > high) high = each;
  }
  return low === undefined ? [] : [low, high];
}

/** Return a number's place between the extremes, from -1 to 1; zero is in the middle if both signs occur. */
function heat(value, [low, high]) {
  const number = Number(value);
  if (number === Infinity) return 1;
  if (number === -Infinity) return -1;
  const most = Math.max(Math.abs(low), Math.abs(high));
  if (low < 0 && high > 0) return number / most;
  const part = high > low ? (number - low) / (high - low) : 0.5;
  return low >= 0 ? part : part - 1;
}

// ---- showing it

const NUMBERS = 256; // the most cells shown as numbers; more become a heat map
const SHEET_NUMBERS = 96; // the same for a whole tensor
const STRIP = 32; // cells in a row of a heat map with one axis
const MOST_PIXELS = 32000; // along a canvas: browsers leave larger ones blank
const MOST_TICKS = 64; // numbers along an edge of a heat map
const MOST_COLUMN = 8; // the most rows of a [n, 1] block shown below each other
const MOST_NARROW = 200; // pixels of the widest block if there are two columns of them next to the code
const SHORT_VECTOR = 16; // lanes that fit into two rows next to the code
const SHORT_CODE = 12; // lines that leave room for the blocks below
const MOST_KEPT = 240; // pixels that the blocks of a step keep for larger ones
const FRAME_MS = 650; // the time of a step while it plays
const STATES = ["", "right", "wrong", "later", "undefined", "race"];
const COUNTED = { right: "correct", later: "partial", race: "stored by two lanes at once" };
const STATE_WORDS = {
  right: "correct", wrong: "wrong", later: "not correct yet, a later store corrects it", undefined: "undefined",
  race: "two lanes of one store write different values here",
};
const KEYS = [
  ["→ ←", "next, previous step"], ["↓ ↑", "past a loop"], ["Page Down, Page Up", "next, previous load or store"],
  ["n, Shift+n", "next, previous line that sets the chosen name"], ["w", "first wrong store or undefined value"],
  ["Home, End", "first, last step"], ["] [", "next, previous program"], ["Tab, then arrows", "lanes of a block"],
];

/** An element: tag, attributes, children. Text is set as text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Enable or disable a button. A focused button with `disabled` would lose the focus, and the keys with it. */
function offer(button, on) {
  button.setAttribute("aria-disabled", String(!on));
}

/** The player of one output. */
class Stage {
  constructor(host, run, style) {
    this.run = run;
    this.place = run.program;
    this.at = run.step;
    this.name = null;
    this.tallest = 0;
    this.timer = null;
    this.wrong = firstWrong(run);
    this.amiss = this.wrong ? firstUndefined(run, this.wrong) : firstProblem(run);
    this.loops = run.functions.some((each) => each.statements.some((statement) => statement[5] === "loop"));
    this.root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    this.root.replaceChildren(make("style", {}, style), this.frame());
    host.addEventListener("keydown", (event) => this.key(event));
    this.colours = new Map();
    new MutationObserver(() => this.recoloured()).observe(document.body, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recoloured());
    this.width = host.clientWidth;
    new ResizeObserver(() => this.resized()).observe(host);
    this.show();
  }

  get program() {
    return this.run.programs[this.place];
  }

  get step() {
    return this.program.steps[this.at];
  }

  /** Lay out again what depends on the width, unless it was removed from the page. */
  resized() {
    if (!this.root.host.isConnected || this.root.host.clientWidth === this.width) return;
    this.width = this.root.host.clientWidth;
    this.tallest = 0;
    this.show();
  }

  // -- the parts that stay

  frame() {
    const { run } = this;
    const button = (text, label, action, extra = {}) =>
      make("button", { type: "button", title: label, "aria-label": label, onclick: action, ...extra }, text);
    const pair = (text, label, go) => {
      const both = [-1, 1].map((direction) => {
        const words = `${direction < 0 ? "previous" : "next"} ${label}`;
        return button(direction < 0 ? "◀" : "▶", words, () => this.go(go(direction)));
      });
      return make("span", { class: "pair" }, both[0], text, both[1]);
    };
    this.steps = make("input", { type: "range", min: 0, "aria-label": "step of the run",
      oninput: () => this.go(Number(this.steps.value)) });
    this.stepText = make("span");
    this.programs = make("input", { type: "range", min: 0, max: run.programs.length - 1,
      "aria-label": "program", oninput: () => this.goProgram(Number(this.programs.value)) });
    this.programText = make("span");
    this.names = make("select", { "aria-label": "name to look for",
      onchange: () => { this.name = this.names.value; this.show(); } });
    this.playing = button("▶ play", "play", () => this.toggle());
    this.alarm = button(this.alarmText(), this.alarmText(), () => this.goAmiss(), { class: "alarm" });
    const span = (text) => make("span", {}, text);
    this.moves = {
      step: pair(span("step"), "step", (d) => this.near(d)),
      loop: pair(span("past loop"), "end of a loop", (d) => overLoop(run, this.program, this.at, d)),
      access: pair(span("load / store"), "load or store", (d) => nextAccess(this.program, this.at, d)),
      change: pair(this.names, "line that sets that name", (d) => nextChange(this.program, this.at, d, this.name)),
    };
    this.code = make("div", { class: "code", tabindex: 0, role: "group", "aria-label": "source" });
    this.blocks = make("div", { class: "blocks" });
    this.room = make("div", { class: "room" }, this.blocks);
    this.room.addEventListener("scroll", () => this.showsMore());
    this.tensors = make("div", { class: "tensors" });
    this.inspect = make("div", { class: "inspect" });
    this.key_ = make("div", { class: "key" });
    this.here = make("div", { class: "part quiet" });
    this.said = make("div", { class: "gone", role: "status", "aria-live": "polite" });
    this.table = make("div");
    this.tables = make("details", { ontoggle: () => this.showTable() },
      make("summary", {}, "The same as a table"), this.table);
    const several = run.programs.length > 1;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    return make("div", { class: "player", role: "region", "aria-label": `run of ${run.title}` },
      make("h3", {}, run.title),
      several ? make("label", { class: "run" }, make("span", {}, "program"), this.programs, this.programText) : null,
      make("label", { class: "run" }, make("span", {}, "step"), this.steps, this.stepText),
      make("div", { class: "bar", role: "group", "aria-label": "move" }, ...Object.values(this.moves), this.alarm,
        still ? null : this.playing),
      ...run.notes.map((note) => make("p", { class: "quiet" }, note)),
      make("div", { class: isBroad(run) ? "stage broad" : "stage" }, make("div", {}, this.code), make("div", {}, this.here, this.room)),
      this.inspect, make("div", { class: "part quiet" }, `In memory${several ? ", for all programs" : ""}:`), this.tensors,
      this.key_, this.tables,
      make("details", {}, make("summary", {}, "Keys"), make("table", {}, make("tbody", {},
        ...KEYS.map(([keys, what]) => make("tr", {}, make("td", {}, keys), make("td", {}, what)))))),
      this.said);
  }

  /** Explain the marks that are used now, and no others. */
  showKey() {
    const entries = [["lit", "accessed by this line"], ["off", "masked off"], ["undefined", "undefined"],
      ["nan", "NaN"], ["infinite", "infinite"], ["right", "stored, correct"], ["wrong", "stored, wrong"],
      ["later", "stored, partial result"], ["race", "stored by two lanes at once"], ["bad", "out of bounds"],
      ["signed", "below 0, above 0"], ["scaled", "smaller to larger"], ["reversed", "smaller to larger"]];
    this.key_.replaceChildren(...entries.filter(([name]) => this.used.has(name)).map(([name, text]) =>
      make("span", {}, make("i", { class: name, "aria-hidden": true }), text)));
  }

  /** Note what a cell shows, for the key. */
  use(marks, value) {
    if (marks) for (const mark of marks.split(" ")) this.used.add(mark);
    if (typeof value === "number" && !Number.isFinite(value) && !/undefined|off|bad/.test(marks)) {
      this.used.add(Number.isNaN(value) ? "nan" : "infinite");
    }
  }

  // -- moving

  near(direction) {
    const at = this.at + direction;
    return at >= 0 && at < this.program.steps.length ? at : null;
  }

  go(at) {
    if (at === null || at === this.at) return;
    this.at = at;
    this.show();
  }

  goProgram(place) {
    if (place < 0 || place >= this.run.programs.length || place === this.place) return;
    const same = this.at === this.program.steps.length - 1;
    this.place = place;
    this.at = same ? this.program.steps.length - 1 : Math.min(this.at, this.program.steps.length - 1);
    this.show();
  }

  goAmiss() {
    if (!this.amiss) return;
    [this.place, this.at] = this.amiss;
    this.show();
  }

  alarmText() {
    if (!this.wrong) return "first problem";
    return this.amiss[1] === this.wrong[1] ? "first wrong store" : "first undefined value";
  }

  toggle() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
    } else {
      if (this.near(1) === null) this.at = 0;
      this.timer = setInterval(() => {
        const there = this.root.host.isConnected;
        if (there && this.near(1) !== null) this.go(this.near(1));
        if (!there || this.near(1) === null) this.toggle();
      }, FRAME_MS);
    }
    this.show();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const target = event.composedPath()[0];
    const inside = target.closest?.("[data-cells]");
    const { run, program, at } = this;
    if (inside && this.walk(inside, event.key)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (target.matches?.("select")) return;
    const moves = {
      ArrowRight: () => this.go(this.near(1)), ArrowLeft: () => this.go(this.near(-1)),
      ArrowDown: () => this.go(overLoop(run, program, at, 1)), ArrowUp: () => this.go(overLoop(run, program, at, -1)),
      PageDown: () => this.go(nextAccess(program, at, 1)), PageUp: () => this.go(nextAccess(program, at, -1)),
      Home: () => this.go(0), End: () => this.go(program.steps.length - 1),
      n: () => this.go(nextChange(program, at, 1, this.name)), N: () => this.go(nextChange(program, at, -1, this.name)),
      w: () => this.goAmiss(), "]": () => this.goProgram(this.place + 1), "[": () => this.goProgram(this.place - 1),
    };
    if (target === this.programs && /^(Arrow|Page|Home|End)/.test(event.key)) return;
    if (!moves[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    moves[event.key]();
  }

  // -- the parts that change

  show() {
    const { run, program, step } = this;
    const held = this.root.activeElement;
    this.steps.max = program.steps.length - 1;
    this.steps.value = this.at;
    const turns = [...turnsAt(run, program, this.at).values()].map((turn) => `, ${turnText(turn)}`);
    this.stepText.textContent = `${this.at + 1} of ${program.steps.length}${turns.join("")}`;
    this.steps.setAttribute("aria-valuetext", this.stepText.textContent);
    this.programs.value = this.place;
    const ids = program.id.slice(0, run.grid.length).join(", ");
    const count = run.grid.reduce((a, b) => a * b, 1);
    const numbers = count > 1 ? `${program.number} (of 0–${count - 1})` : `${program.number}`;
    this.programText.textContent = run.grid.length > 1 ? `(${ids}), number ${numbers}` : numbers;
    this.programs.setAttribute("aria-valuetext", this.programText.textContent);
    this.colours.clear();
    this.used = new Set();
    this.here.textContent = run.programs.length > 1 ? `In program ${ids}, at this line:` : "At this line:";
    this.showNames();
    this.showMoves();
    this.showCode();
    this.showBlocks();
    this.holdStill();
    this.showTensors();
    this.showKey();
    this.showTable();
    this.inspect.textContent = this.noteText() || "Point at a cell to see its value. With the keyboard: Tab goes to a block, arrows move within it.";
    this.inspect.classList.toggle("alarm-text", Boolean(step.e));
    this.said.textContent = this.spoken();
    if (held && !held.isConnected) this.code.focus({ preventScroll: true });  // its block is gone: the keys stay here
  }

  noteText() {
    const { step } = this;
    return [step.n, step.e].filter(Boolean).join(". ");
  }

  spoken() {
    const { run, program, at, step } = this;
    const [line] = linesOf(run, program, step);
    const source = functionOf(run, program, step);
    const turns = [...turnsAt(run, program, at).values()].map((turn) => turnText(turn));
    const changed = namesAt(run, program, at).filter((each) => each.role === "changed").map((each) => {
      const lanes = lanesChanged(run, each);
      return !lanes ? `changes ${each.name}` : lanes[0] ? `changes ${each.name} in ${lanes[0]} of ${lanes[1]} lanes`
        : `${each.name} stays as it was`;
    });
    return [`step ${at + 1}, line ${source.first + line - 1}: ${source.lines[line - 1].trim()}`, ...turns,
      changed.join(", "), this.noteText()].filter(Boolean).join(". ");
  }

  showNames() {
    const every = new Set();
    for (const step of this.program.steps) for (const [name] of step.w ?? []) if (name !== "return") every.add(name);
    const names = [...every];
    if (!names.includes(this.name)) {
      const local = this.program.steps.filter((step) => step.k !== undefined && step.w);
      this.name = local.length ? local[local.length - 1].w[0][0] : names[0];
      if (!names.includes(this.name)) this.name = names[0];
    }
    if (this.names.textContent !== names.join("")) {
      this.names.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    }
    this.names.value = this.name;
  }

  showMoves() {
    const { run, program, at } = this;
    const found = {
      step: (d) => this.near(d), loop: (d) => overLoop(run, program, at, d),
      access: (d) => nextAccess(program, at, d), change: (d) => nextChange(program, at, d, this.name),
    };
    for (const [name, element] of Object.entries(this.moves)) {
      const [back, forward] = element.querySelectorAll("button");
      offer(back, found[name](-1) !== null);
      offer(forward, found[name](1) !== null);
    }
    offer(this.alarm, this.amiss);
    this.alarm.hidden = !this.amiss;
    this.moves.loop.hidden = !this.loops;
    this.playing.textContent = this.timer ? "❚❚ pause" : "play";
    this.playing.setAttribute("aria-label", this.timer ? "pause" : "play");
  }

  showCode() {
    const { run, program, at, step } = this;
    const source = functionOf(run, program, step);
    const [first, last] = linesOf(run, program, step);
    const turns = turnsAt(run, program, at);
    const names = namesAt(run, program, at);
    const roles = new Map(names.map((each) => [each.name.split(/[[,]/)[0], each.role]).reverse());
    const rows = callers(run, program, at).map((each) =>
      make("div", { class: "caller" }, `${each.name} called this function at line `,
        String(functionOf(run, program, each.step).first + each.line - 1)));
    source.lines.forEach((text, i) => {
      const on = i + 1 >= first && i + 1 <= last;
      const row = make("div", { class: on ? "on" : "", "aria-current": on && "step", style: `--in: ${text.search(/\S|$/)}ch` },
        make("span", { class: "number" }, String(source.first + i)), ...coloured(text, on ? roles : new Map()));
      if (turns.has(i + 1)) row.append(make("span", { class: "turn" }, turnText(turns.get(i + 1))));
      rows.push(row);
    });
    this.code.replaceChildren(...rows);
    const lit = this.code.querySelector(".on");
    if (lit) keepInView(this.code, lit);
  }

  showBlocks() {
    const { run, program, at, step } = this;
    this.blocks.classList.remove("narrow", "stacked");
    this.strips = [];
    const content = (value) => run.values[value].h ?? value;  // the block itself: others may hold the same
    const shown = { has: (value) => seen.has(content(value)), add: (value) => seen.add(content(value)) };
    const seen = new Set();
    const stored = new Set();
    const blocks = [];
    for (const { name, value, role, was } of namesAt(run, program, at)) {
      const access = (step.a ?? []).find((each) => content(each.v) === content(value)
        && (each.k === "store") === (role === "read"));
      if (access?.k === "store") stored.add(access);
      shown.add(value);
      const title = name === "return" ? "return value" : name;
      const changed = access ? { load: "loaded", atomic: "value before the atomic" }[access.k]
        : step.k === undefined ? "given" : step.n === "returns" ? "returned" : was === undefined ? "set" : "changed";
      const read = access ? `stored to ${run.tensors[access.T]?.name ?? "?"}` : "read";
      const lanes = role === "changed" ? lanesChanged(run, { value, was }) : null;
      const written = lanes && !lanes[0] && changed === "changed" ? "unchanged" : changed;
      blocks.push(this.valueBlock(title, role === "changed" ? written : read, value, role, access, lanes));
    }
    for (const [left, right, start, result] of step.d ?? []) {
      const shape = (value) => arrayOf(run, run.values[value].a).shape.join(" × ");
      const title = `dot [${shape(left)}] @ [${shape(right)}]`;
      const operands = [["left", left], ["right", right], ["added to", start], ["result", result]];
      for (const [word, value] of operands) {
        if (shown.has(value)) continue;
        shown.add(value);
        blocks.push(this.valueBlock(title, word, value, word === "result" ? "changed" : "read"));
      }
    }
    for (const access of step.a ?? []) {
      const words = { load: "loaded from", store: "stored to", atomic: "value before the atomic in" };
      const tensor = run.tensors[access.T]?.name ?? "?";
      if (!shown.has(access.v) || (access.k === "store" && !stored.has(access))) {
        blocks.push(this.valueBlock(`${words[access.k]} ${tensor}`, access.k, access.v, "changed", access));
      }
      for (const operand of access.o ?? []) {
        blocks.push(this.valueBlock(`operand of the atomic in ${tensor}`, "operand", operand, "read", access));
      }
    }
    this.blocks.replaceChildren(...blocks);
    this.align(this.blocks);
    const cells = [...this.blocks.querySelectorAll(".scroll > *")];
    if (!this.blocks.matches(".stacked") && cells.every((each) => each.scrollWidth < MOST_NARROW)) this.blocks.classList.add("narrow");
    if (cells.some((each) => each.scrollWidth > each.parentElement.clientWidth)) this.blocks.classList.add("stacked");
    if (!blocks.length) this.blocks.append(make("p", { class: "quiet" }, "This line doesn't read or change any names."));
  }

  /**
   * Give all vectors of one length rows of one length and cells of one width. Blocks with such vectors, and no
   * larger ones, are stacked, so that a lane is in the same place in each.
   */
  align(box) {
    const strips = this.strips.filter((each) => box.contains(each) && each.view.size > 1);
    if (box === this.blocks && strips.length > 1 && strips.length === box.querySelectorAll(".scroll").length) {
      const sizes = new Set(strips.map((each) => each.view.size));
      if (sizes.size === 1) box.classList.add("stacked");
    }
    for (const size of new Set(strips.map((each) => each.view.size))) {
      const alike = strips.filter((each) => each.view.size === size);
      const widest = Math.max(...alike.map((each) => each.view.widest));
      const columns = Math.min(size, wrapped(roomIn(box) - 70, widest));
      for (const each of alike) {
        const view = this.numberCells(each.view, columns, widest);
        each.replaceChildren(view.element);
        Object.assign(each.view, view);
      }
    }
  }

  /**
   * Keep the room that the blocks of earlier steps took, so that what is below doesn't jump up and down. If
   * the room is too small for all blocks, show the one that changes.
   */
  holdStill() {
    const tall = this.blocks.scrollHeight;
    if (tall > this.tallest) this.tallest = tall;
    this.blocks.style.minHeight = `${Math.min(this.tallest, MOST_KEPT)}px`;
    const changed = this.blocks.querySelector(".changed");
    const end = changed ? changed.offsetTop + changed.offsetHeight : 0;
    this.room.scrollTop = end > this.room.clientHeight ? changed.offsetTop : 0;
    this.showsMore();
  }

  /** Show a line at the lower edge of the blocks while some of them are below it. */
  showsMore() {
    const { scrollTop, clientHeight, scrollHeight } = this.room;
    this.room.classList.toggle("more", scrollTop + clientHeight < scrollHeight - 4);
  }

  valueBlock(name, tag, number, role, access, lanes = null) {
    const { run } = this;
    const value = run.values[number];
    const block = make("section", { class: `block ${role}` }, make("header", {}, make("h4", {}, name),
      make("span", { class: "quiet" }, kindText(run, value)), make("span", { class: "tag" }, tag)));
    if (value.text !== undefined) {
      block.querySelector("header").append(make("code", {}, value.text));
      return block;
    }
    const { shape, data } = isBlock(value) ? arrayOf(run, value.a) : { shape: [], data: [plain(value.x)] };
    const off = value.o === undefined ? null : arrayOf(run, value.o).data;
    const mask = access?.m === undefined ? null : arrayOf(run, access.m).data;
    const bad = access?.b === undefined ? null : arrayOf(run, access.b).data;
    const undefined_ = value.u === undefined ? null : arrayOf(run, value.u).data;
    const tensor = value.to === undefined ? null : run.tensors[value.to];
    const isMasked = mask && mask.length === data.length;
    const isUnused = (i) => Boolean(undefined_?.[i]) && (run.unused ?? []).includes(undefined_[i]);
    const isOff = (i) => Boolean(access?.k === "store" && isMasked ? !mask[i]
      : off?.[i] || isUnused(i) || (isMasked && !mask[i]));
    const isUsed = (i) => Boolean(undefined_?.[i]) && !isOff(i);  // what a masked-off lane contains doesn't matter
    const state = (i) => {
      if (bad?.[i]) return "bad";
      if (isOff(i)) return "off";
      return isUsed(i) ? "undefined" : "";
    };
    const text = (i) => {
      if (undefined_?.[i]) return isOff(i) ? "" : "?";
      return tensor ? String(data[i]) : numberText(data[i], 4);
    };
    const describe = (i) => {
      const lane = coordinates(shape, i).join(", ");
      const at = !shape.length ? name : /^\w+$/.test(name) ? `lane [${lane}] of ${name}` : `the value of lane [${lane}]`;
      const says = [];
      if (tensor) says.push(`points to ${address(tensor, Number(data[i]))}`);
      else if (!undefined_?.[i]) says.push(`= ${numberText(data[i], 9)}`);
      const isAccess = access && arrayOf(run, access.i).data.length === data.length;
      const why = isAccess ? laneText(run, access, i) : off?.[i] ? "masked off in its load"
        : isUnused(i) ? `${run.sources[undefined_[i] - 1]}, and nothing uses it` : "";
      if (isUsed(i)) {
        const undefinedIs = `is undefined: ${run.sources[undefined_[i] - 1] ?? "?"}`;
        return isAccess ? `${why}; its value ${undefinedIs}` : `${at} ${undefinedIs}`;
      }
      if (!says.length) return `${at}: ${why.replace(/^lane \[.*?\]:? /, "")}`;
      return `${at} ${[...says, why].filter(Boolean).join("; ")}`;
    };
    const facts = [];
    const limits = range(data, (i) => Boolean(undefined_?.[i]));
    if (limits && data.length > 1 && !tensor) facts.push(`${numberText(limits[0])} to ${numberText(limits[1])}`);
    const count = (fits) => { let n = 0; for (let i = 0; i < data.length; i++) n += fits(i) ? 1 : 0; return n; };
    const nans = tensor ? 0 : count((i) => Number.isNaN(data[i]) && !undefined_?.[i]);
    const infs = tensor ? 0 : count((i) => Math.abs(Number(data[i])) === Infinity);
    if (nans) facts.push(`${nans} NaN`);
    if (infs) facts.push(`${infs} infinite`);
    const isEmpty = data.length > 1 && data.some((_, i) => isUnused(i));
    if (off || mask || isEmpty) facts.push(`${count(isOff)} of ${data.length} lanes off`);
    if (bad) facts.push(`${count((i) => bad[i])} out of bounds`);
    const unknown = undefined_ ? count((i) => isUsed(i) && !bad?.[i]) : 0;
    if (unknown) facts.push(`${unknown} undefined`);
    if (typeof data[0] === "boolean" && data.length > 1) facts.push(`${count((i) => data[i])} of ${data.length} True`);
    if (lanes) facts.push(`${lanes[0]} of ${lanes[1]} lanes changed`);
    if (facts.length) block.querySelector("header").append(make("span", { class: "quiet" }, facts.join(", ")));
    const isSingle = !isBlock(value) && !access;
    if (tensor) {
      const words = isSingle ? "the address of" : `addresses in ${tensor.name}`;
      block.querySelector("header").append(make("span", { class: "quiet" }, words));
    }
    if (isSingle) {
      const words = undefined_ ? describe(0) : tensor ? address(tensor, Number(data[0])) : text(0);
      block.querySelector("header").append(make("code", { class: state(0) }, words));
      return block;
    }
    block.append(this.cells({ label: name, shape, size: data.length, text, state, describe,
      number: (i) => (undefined_?.[i] && isOff(i) ? undefined : data[i]), limits: limits ?? [0, 0] }));
    return block;
  }

  showTensors() {
    const { run, step } = this;
    const stored = this.storedSoFar();
    this.tensors.replaceChildren(...run.tensors.map((tensor, t) =>
      this.tensorBlock(tensor, stored[t], (step.a ?? []).filter((access) => access.T === t))));
    this.align(this.tensors);
  }

  /** Return what is stored now, by tensor; the same from one store to the next. */
  storedSoFar() {
    let last = this.at;
    while (last >= 0 && !this.program.steps[last].a?.some((access) => access.s)) last -= 1;
    const key = `${this.place} ${last}`;
    if (this.storedAt !== key) {
      this.storedAt = key;
      this.stored = storedAt(this.run, this.place, last).map((map, t) => {
        const size = this.run.tensors[t].shape.reduce((a, b) => a * b, 1);
        const stored = { values: new Array(map.size ? size : 0), states: new Uint8Array(size), size: map.size };
        stored.counts = new Array(STATES.length).fill(0);
        for (const [i, [value, state]] of map) {
          stored.values[i] = value;
          stored.states[i] = state;
          stored.counts[state] += 1;
        }
        return stored;
      });
    }
    return this.stored;
  }

  tensorBlock(tensor, stored, accesses) {
    const { run } = this;
    const size = tensor.shape.reduce((a, b) => a * b, 1);
    const touched = { load: { count: 0 }, store: { count: 0 } };
    const kinds = accesses.length ? new Uint8Array(size) : null;  // of each element: 1 loaded, 2 stored, 3 both
    const bad = new Set();
    for (const access of accesses) {
      const { data } = arrayOf(run, access.i);
      const mask = access.m === undefined ? null : arrayOf(run, access.m).data;
      const out = access.b === undefined ? null : arrayOf(run, access.b).data;
      for (let i = 0; i < data.length; i++) {
        if (mask && !mask[i]) continue;
        const element = Number(data[i]);
        if (out?.[i]) bad.add(element);
        else {
          const [bit, some] = access.k === "load" ? [1, touched.load] : [2, touched.store];
          if (kinds[element] & bit) continue;
          kinds[element] |= bit;
          some.count += 1;
          if (some.first === undefined || element < some.first) some.first = element;
        }
      }
    }
    const values = tensor.values === undefined ? null : arrayOf(run, tensor.values).data;
    const wanted = tensor.wanted === undefined ? null : arrayOf(run, tensor.wanted).data;
    const [low, high] = ends(bad);
    const beyond = tensor.shape.length === 1 && low >= 0 ? Math.min(high + 1 - size, 64) : 0;
    const valueAt = (i) => (stored.states[i] ? stored.values[i] : values?.[i]);
    const isUndefined = (i) => stored.states[i] === UNDEFINED;
    const marks = STATES.map((state) => {
      const judged = state || (values || !wanted ? "" : "empty");
      return ["", "lit", "lit", "lit"].map((lit) => [judged, lit].filter(Boolean).join(" "));
    });
    const mark = (i) => (i >= size ? (bad.has(i) ? "bad" : "off") : marks[stored.states[i]][kinds ? kinds[i] : 0]);
    const describe = (i) => {
      if (i >= size) return `${address(tensor, i)} is out of bounds`;
      const says = [address(tensor, i)];
      if (stored.states[i]) {
        const value = isUndefined(i) ? [] : [`= ${numberText(stored.values[i], 9)}`];
        says.push(...value, STATE_WORDS[STATES[stored.states[i]]]);
      } else if (values) says.push(`= ${numberText(values[i], 9)}`);
      else says.push(wanted ? "nothing is stored there yet" : "its values are too many to keep");
      if (wanted) says.push(`expected ${numberText(wanted[i], 9)}`);
      if (kinds?.[i] & 1) says.push("loaded by this line");
      if (kinds?.[i] & 2) says.push("stored by this line");
      return says.join("; ");
    };
    const facts = [];
    const { load, store } = touched;
    if (load.count) facts.push(`${load.count} loaded by this line`);
    if (store.count) facts.push(`${store.count} stored by this line`);
    if (size > SHEET_NUMBERS && values && range(values)) facts.unshift(range(values).map((each) => numberText(each)).join(" to "));
    if (stored.size) {
      facts.push(`${stored.size} of ${size} stored so far: ` + stored.counts.slice(1).map((n, i) => [n, STATES[i + 1]])
        .filter(([n]) => n).map(([n, word]) => `${n} ${COUNTED[word] ?? word}`).join(", "));
    } else if (wanted) facts.push("nothing stored yet");
    const header = make("header", {}, make("h4", {}, tensor.name),
      make("span", { class: "quiet" }, `${tensor.dtype} [${tensor.shape.join(", ")}]${axesText(tensor.dims)}`),
      make("span", { class: "quiet" }, facts.join("; ")));
    if (bad.size) {
      header.append(make("span", { class: "alarm-text" },
        `out of bounds: ${bad.size === 1 ? `element ${low}` : `elements ${low} to ${high}`}, but ${tensor.name} has ${size}`));
    }
    const all = values ?? wanted;
    return make("section", { class: `block ${store.count ? "changed" : ""}` }, header, this.cells({
      label: tensor.name, shape: tensor.shape.length === 1 ? [size + beyond] : tensor.shape, size: size + beyond,
      text: (i) => (i >= size || valueAt(i) === undefined ? "·" : isUndefined(i) ? "?" : numberText(valueAt(i), 4)),
      number: (i) => (i < size && !isUndefined(i) ? valueAt(i) : undefined), state: mark, describe, limits: (all && range(all)) ?? [0, 0],
      isSheet: true, lit: load.first ?? store.first }));
  }

  // -- cells: numbers if they are few, else a heat map

  cells(spec) {
    const isStrip = spec.shape.filter((size) => size > 1).length < 2;
    const isColumn = isStrip && spec.shape.length > 1 && spec.shape[spec.shape.length - 1] === 1 && spec.size <= MOST_COLUMN;
    let columns = isColumn ? 1 : isStrip ? spec.size : spec.shape[spec.shape.length - 1];
    const few = spec.size <= (spec.isSheet ? SHEET_NUMBERS : NUMBERS) && (isStrip || columns <= 16);
    let widest = 1;
    if (few && isStrip) {
      widest = Math.max(1, ...Array.from({ length: spec.size }, (_, i) => spec.text(i).length));
      const box = spec.isSheet ? this.tensors : this.blocks;
      columns = Math.min(columns, wrapped(roomIn(box) - 70, widest));
    }
    const view = few ? this.numberCells(spec, columns) : this.heatCells(spec);
    const element = make("div", { class: "scroll", "data-cells": "", tabindex: spec.size > 1 ? 0 : undefined,
      role: "group", "aria-label": `${spec.label}, ${spec.size} cells: arrow keys move within them` }, view.element);
    element.view = { ...spec, ...view, widest, at: null };
    if (few && isStrip && !isColumn) this.strips.push(element);
    element.addEventListener("pointermove", (event) => {
      const at = element.view.under(event);
      if (at !== null) this.say(spec.describe(at));
    });
    element.addEventListener("focus", () => {
      const at = element.view.at ?? spec.lit ?? 0;
      if (spec.size > 1 && element.matches(":focus-visible")) this.point(element, at);
    });
    if (spec.lit !== null && spec.lit !== undefined) requestAnimationFrame(() => element.view.reveal(element, spec.lit));
    return element;
  }

  numberCells({ shape, size, text, state, number }, columns, widest = 0) {
    const grid = make("div", { class: "grid" });
    const isStrip = shape.filter((each) => each > 1).length < 2;
    const head = size > columns || !isStrip;
    grid.style.gridTemplateColumns = `${head ? "max-content " : ""}repeat(${Math.max(columns, 1)}, minmax(${widest ? Math.ceil(7.3 * Math.max(widest, 2) + 10) : 0}px, max-content))`;
    const spans = [];
    for (let i = 0; i < size; i++) {
      if (head && i % columns === 0) {
        const place = coordinates(shape, i);
        const places = !isStrip || columns === 1 ? place.slice(0, -1).join(", ")
          : shape.length > 1 ? `[${place.join(", ")}]` : String(i);
        grid.append(make("i", {}, places));
      }
      const value = number(i);
      const odd = typeof value === "number" && !Number.isFinite(value) ? " odd" : "";
      const marks = state(i);
      const hatched = /off|undefined/.test(marks) && text(i);
      const span = make("span", { class: `${marks}${odd}` }, hatched ? make("u", {}, text(i)) : text(i));
      this.use(marks, value);
      spans.push(span);
      grid.append(span);
    }
    const rest = (columns - (size % columns)) % columns;
    if (rest && size > columns) grid.append(make("b", { class: "rest", style: `grid-column: span ${rest}` }));
    return {
      element: grid, columns,
      under: (event) => { const i = spans.indexOf(event.target.closest("span")); return i < 0 ? null : i; },
      mark: (i) => spans.forEach((span, each) => span.classList.toggle("here", each === i)),
      reveal: (box, i) => keepInView(box, spans[i]),
    };
  }

  heatCells(spec) {
    const { shape, size } = spec;
    const isStrip = shape.filter((each) => each > 1).length < 2;
    const columns = isStrip ? Math.min(size, STRIP) : shape[shape.length - 1];
    const rows = Math.ceil(size / columns);
    const most = Math.min(536, roomIn(spec.isSheet ? this.tensors : this.blocks) - 60);
    const room = [Math.floor(most / columns), Math.floor((spec.isSheet || isStrip ? 230 : 176) / rows), isStrip ? 13 : spec.isSheet ? 9 : 11];
    const longest = Math.max(columns, rows);
    const side = Math.min(Math.max(3, Math.min(...room)), Math.max(1, Math.floor(16000 / longest)));
    const scale = Math.min(2, Math.ceil(devicePixelRatio || 1), MOST_PIXELS / (longest * side));
    const [width, height] = [columns, rows].map((count) => Math.ceil(count * side * scale));
    const canvas = make("canvas", { width, height });
    canvas.style.width = `${columns * side}px`;
    canvas.style.height = `${rows * side}px`;
    let still = null;  // everything except the cell pointed at
    const paint = (here = null) => {
      const pen = canvas.getContext("2d");
      if (here === null || !still) {
        this.paint(canvas, spec, columns, side, scale);
        if (here === null) { still = null; return; }
        still = make("canvas", { width, height });
        still.getContext("2d").drawImage(canvas, 0, 0);
      } else pen.drawImage(still, 0, 0);
      const room = side * scale;
      pen.lineWidth = 3;
      pen.strokeStyle = css(this.colour("--brand"));
      pen.strokeRect((here % columns) * room + 1, Math.floor(here / columns) * room + 1, room - 2, room - 2);
    };
    canvas.paint = () => paint();
    paint();
    const heads = numbered(canvas, side, spec, columns, isStrip);
    return {
      element: heads.element, columns,
      under: (event) => {
        const box = canvas.getBoundingClientRect();
        const column = Math.floor((event.clientX - box.left) / side);
        const row = Math.floor((event.clientY - box.top) / side);
        const i = row * columns + column;
        return column >= 0 && column < columns && row >= 0 && i < size ? i : null;
      },
      mark: (i) => paint(i),
      reveal: (box, i) => {
        const [x, y] = [heads.across + (i % columns) * side, heads.down + Math.floor(i / columns) * side];
        if (x < box.scrollLeft || x > box.scrollLeft + box.clientWidth - side) box.scrollLeft = x - 20;
        if (y < box.scrollTop || y > box.scrollTop + box.clientHeight - side) box.scrollTop = y - 20;
      },
    };
  }

  /** Draw a heat map: a pixel per color, enlarged, and the marks on top. */
  paint(canvas, { size, number, state, limits }, columns, room, scale) {
    const side = room * scale;
    const pen = canvas.getContext("2d");
    const colour = (name) => this.colour(name);
    const [paper, line, ink, wrong, brand] = ["--paper", "--line", "--ink", "--wrong", "--brand"].map(colour);
    const [cold, hot] = ["--cold", "--hot"].map(colour);
    const judged = { right: mixed(paper, colour("--ok"), 0.5), wrong: mixed(paper, wrong, 0.7),
      later: mixed(paper, colour("--open"), 0.5), race: mixed(paper, wrong, 0.6) };
    const known = new Map();
    const read = (marks) => {
      if (!known.has(marks)) {
        const each = marks.split(" ");
        const stored = each.find((mark) => judged[mark]);
        const [off, undefined_, empty] = ["off", "undefined", "empty"].map((mark) => each.includes(mark));
        const fill = stored ? judged[stored] : each.includes("bad") ? wrong : undefined_ ? mixed(paper, wrong, 0.26) : null;
        known.set(marks, { fill, off, undefined_, empty, wrong: stored === "wrong" || stored === "race", lit: marks.includes("lit") });
      }
      return known.get(marks);
    };
    const rows = Math.ceil(size / columns);
    const data = new Uint8ClampedArray(4 * columns * rows);
    const isLit = new Uint8Array(size);
    const [offs, unknowns, nans, crosses] = [[], [], [], []];
    const isHatched = side >= 5;  // smaller cells mix in the hatching's color instead
    const [yes, grey] = [mixed(paper, brand, 0.75), mixed(paper, ink, 0.45)];
    let marks = state(0);
    let mark = read(marks);
    for (let i = 0; i < size; i++) {
      const now = state(i);
      if (now !== marks) { marks = now; mark = read(now); }
      const value = number(i);
      this.use(now, value);
      const isNan = value !== value;
      let fill = mark.fill ?? paper;
      let other = paper;
      let part = 0;
      if (value === true && !mark.fill) fill = yes;
      else if (!mark.fill && !mark.empty && !isNan && value !== undefined && value !== false) {
        const warmth = heat(value, limits);
        if (limits[0] < limits[1]) this.used.add(limits[0] >= 0 ? "scaled" : limits[1] > 0 ? "signed" : "reversed");
        other = warmth < 0 ? cold : hot;
        part = 0.08 + 0.8 * Math.abs(warmth);
      }
      const hatch = isHatched ? null : mark.undefined_ ? wrong : mark.off ? grey : null;
      for (let c = 0; c < 3; c++) {
        const plain = fill[c] + (other[c] - fill[c]) * part;
        data[4 * i + c] = hatch ? (plain + hatch[c]) / 2 : plain;
      }
      data[4 * i + 3] = 255;
      if (mark.lit) isLit[i] = 1;
      if (mark.off && isHatched) offs.push(i);
      if (mark.undefined_) { if (isHatched) unknowns.push(i); } else if (isNan) nans.push(i);
      if (mark.wrong || value === Infinity || value === -Infinity) crosses.push(i);
    }
    pen.fillStyle = css(paper);
    pen.fillRect(0, 0, canvas.width, canvas.height);
    enlarged(pen, data, columns, rows, side);
    const at = (i) => [(i % columns) * side, Math.floor(i / columns) * side];
    stripes(pen, offs.map(at), side, css(grey), 1);
    stripes(pen, unknowns.map(at), side, css(wrong), -1);
    for (const i of nans) dot(pen, ...at(i), side, css(wrong));
    if (side >= 6 * scale) for (const way of [1, -1]) stripes(pen, crosses.map(at), side, css(ink), way);
    pen.fillStyle = css(ink);
    for (let i = 0; i < size; i++) if (isLit[i]) this.rim(pen, isLit, i, columns, side);
    if (side >= 6) {
      pen.strokeStyle = css(line);
      pen.lineWidth = 0.5;
      pen.beginPath();
      for (let x = side; x < canvas.width; x += side) { pen.moveTo(x, 0); pen.lineTo(x, canvas.height); }
      for (let y = side; y < canvas.height; y += side) { pen.moveTo(0, y); pen.lineTo(canvas.width, y); }
      pen.stroke();
    }
    if (size % columns) {  // no cells
      pen.fillStyle = css(paper);
      pen.fillRect((size % columns) * side + 1, (rows - 1) * side + 1, canvas.width, canvas.height);
    }
  }

  /** Return the sides of a lit cell that have no lit neighbor. */
  rim(pen, isLit, i, columns, side) {
    const [x, y] = [(i % columns) * side, Math.floor(i / columns) * side];
    const wide = side > 6 ? 2 : 1;
    if (i % columns === 0 || !isLit[i - 1]) pen.fillRect(x, y, wide, side);
    if (i % columns === columns - 1 || !isLit[i + 1]) pen.fillRect(x + side - wide, y, wide, side);
    if (!isLit[i - columns]) pen.fillRect(x, y, side, wide);
    if (!isLit[i + columns]) pen.fillRect(x, y + side - wide, side, wide);
  }

  /** Handle arrow keys within a block; return whether the key was used. */
  walk(element, key) {
    const { view } = element;
    if (!view || view.size < 2) return false;
    const from = view.at ?? 0;
    const to = {
      ArrowRight: from + 1, ArrowLeft: from - 1, ArrowDown: from + view.columns, ArrowUp: from - view.columns,
      Home: 0, End: view.size - 1,
    }[key];
    if (to === undefined) return false;
    this.point(element, Math.max(0, Math.min(view.size - 1, to)));
    return true;
  }

  point(element, at) {
    element.view.at = at;
    element.view.mark(at);
    element.view.reveal(element, at);
    this.say(element.view.describe(at));
    this.said.textContent = this.inspect.textContent;
  }

  say(text) {
    this.inspect.classList.remove("alarm-text");
    this.inspect.textContent = text;
  }

  // -- the same as a table

  showTable() {
    if (!this.tables.open) return;
    const { run, program, at, step } = this;
    const rows = namesAt(run, program, at).map(({ name, value, role }) => [name, role, ...this.row(run.values[value])]);
    for (const access of step.a ?? []) {
      const tensor = run.tensors[access.T]?.name ?? "?";
      rows.push([tensor, access.k, ...this.row(run.values[access.v])]);
      const { data } = arrayOf(run, access.i);
      const lanes = [...data.keys()].slice(0, 16).map((lane) => laneText(run, access, lane));
      rows.push([`lanes of ${tensor}`, access.k, "", `[${arrayOf(run, access.i).shape.join(", ")}]`, "",
        lanes.join("; ") + (data.length > 16 ? "; …" : "")]);
    }
    const head = ["name", "here", "dtype", "shape", "range", "first values"];
    this.table.replaceChildren(make("table", {}, make("thead", {}, make("tr", {},
      ...head.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {},
      ...rows.map((row) => make("tr", {}, ...row.map((text) => make("td", {}, text)))))));
  }

  row(value) {
    const { run } = this;
    if (value.text !== undefined) return ["constant", "", "", value.text];
    const { shape, data } = isBlock(value) ? arrayOf(run, value.a) : { shape: [], data: [plain(value.x)] };
    const unknown = value.u === undefined ? null : arrayOf(run, value.u).data;
    const off = value.o === undefined ? null : arrayOf(run, value.o).data;
    const limits = value.to === undefined ? range(data, (i) => Boolean(unknown?.[i])) : null;
    const one = (each, i) => {
      const text = unknown?.[i] ? "undefined"
        : value.to >= 0 ? address(run.tensors[value.to], Number(each)) : numberText(each);
      return off?.[i] || (unknown?.[i] && (run.unused ?? []).includes(unknown[i])) ? `${text} (off)` : text;
    };
    const first = Array.from(data.slice(0, 16), one).join(", ") + (data.length > 16 ? ", …" : "");
    const words = value.to === undefined ? value.dtype : `pointer to ${value.dtype}`;
    return [words, `[${shape.join(", ")}]`, limits ? `${numberText(limits[0])} to ${numberText(limits[1])}` : "", first];
  }

  // -- colors, which are the theme's

  colour(name) {
    if (!this.colours.has(name)) {
      const probe = make("span");
      probe.style.color = `var(${name})`;
      probe.style.forcedColorAdjust = "none";
      this.root.append(probe);
      this.colours.set(name, rgb(getComputedStyle(probe).color));
      probe.remove();
    }
    return this.colours.get(name);
  }

  recoloured() {
    this.colours.clear();
    if (!this.root.host.isConnected) this.width = null;  // no colors are known: it is painted when it is back in the page
    else for (const canvas of this.root.querySelectorAll("canvas")) canvas.paint();
  }
}

/** Return which of `count` cells get a number at the edge of a heat map: every 1st, 2nd, 4th ..., with `room` pixels each. */
function ticks(count, side, room) {
  const every = 2 ** Math.max(0, Math.ceil(Math.log2(room / side)));
  const most = Math.max(every, 2 ** Math.ceil(Math.log2(count / MOST_TICKS)));
  return Array.from({ length: Math.ceil(count / most) }, (_, at) => at * most);
}

/** Put the numbers of columns above a heat map, and those of rows to its left. */
function numbered(canvas, side, { shape, size }, columns, isStrip) {
  const rows = Math.ceil(size / columns);
  const rowName = (row) => (isStrip ? String(row * columns) : coordinates(shape, row * columns).slice(0, -1).join(", "));
  const down = ticks(rows, side, 13).map((row) => [row, rowName(row)]);
  const longest = Math.max(...down.map(([, name]) => name.length));
  const above = make("div", { class: "columns", "aria-hidden": "true", style: `width: ${columns * side}px` },
    ...ticks(columns, side, 8 + 7 * String(columns - 1).length).map((column) =>
      make("i", { style: `left: ${column * side}px; min-width: ${side}px` }, String(column))));
  const left = make("div", { class: "rows", "aria-hidden": "true", style: `width: ${longest + 1}ch; height: ${rows * side}px` },
    ...down.map(([row, name]) => make("i", { style: `top: ${row * side}px; line-height: ${Math.max(side, 13)}px` }, name)));
  const element = make("div", { class: "numbered" }, make("span"), above, left, canvas);
  return { element, across: 8 * longest, down: 16 };
}

/** Draw pixels of four bytes as squares, piece by piece, because a canvas has a largest size. */
function enlarged(pen, data, columns, rows, side) {
  const most = 8192;
  pen.imageSmoothingEnabled = false;
  for (let top = 0; top < rows; top += most) {
    for (let left = 0; left < columns; left += most) {
      const [width, height] = [Math.min(most, columns - left), Math.min(most, rows - top)];
      const piece = new ImageData(width, height);
      for (let row = 0; row < height; row++) {
        const from = 4 * ((top + row) * columns + left);
        piece.data.set(data.subarray(from, from + 4 * width), 4 * row * width);
      }
      const small = make("canvas", { width, height });
      small.getContext("2d").putImageData(piece, 0, 0);
      pen.drawImage(small, left * side, top * side, width * side, height * side);
    }
  }
}

/** Whether a run has long vectors and little code: then the vectors are below the code, in longer rows. */
function isBroad({ functions, arrays }) {
  const shapes = arrays.map(([, shape]) => shape.filter((size) => size > 1));
  const isLong = shapes.some(([size]) => size > SHORT_VECTOR && size <= NUMBERS);
  return isLong && shapes.every((shape) => shape.length < 2) && functions.every(({ lines }) => lines.length <= SHORT_CODE);
}

/** Return the width of a box's column in pixels. */
function roomIn(box) {
  const { columnCount, columnWidth, columnGap } = getComputedStyle(box);
  const [wide, gap] = [parseFloat(columnWidth), parseFloat(columnGap)];
  if (!(columnCount > 1 && wide)) return box.clientWidth;
  const count = Math.max(1, Math.min(Number(columnCount), Math.floor((box.clientWidth + gap) / (wide + gap))));
  return (box.clientWidth + gap) / count - gap;
}

/** Return how many cells of a number of characters fit into a row: a power of two. */
function wrapped(width, characters) {
  const most = width / (7.3 * Math.max(characters, 2) + 12);
  return 2 ** Math.max(2, Math.min(5, Math.floor(Math.log2(Math.max(most, 1)))));
}

/** Return the names of a tensor's axes; "" if one of them has only a formula for its size, such as (N+31)//32. */
function axesText(dims) {
  return dims.every((dim) => /^[A-Za-z_]\w*$/.test(dim)) ? `, ${dims.length === 1 ? "axis" : "axes"} ${dims.join(" ")}` : "";
}

function turnText([turn, of]) {
  return `iteration ${turn}${of ? ` of ${of}` : ""}`;
}

/** Return a line of source with its names marked and its comment faint. */
function coloured(text, roles) {
  const out = [];
  const parts = text.split(/(#.*$|[A-Za-z_]\w*(?!\w*=[^=]))/);
  for (const part of parts) {
    if (part.startsWith("#")) out.push(make("span", { class: "comment" }, part));
    else if (roles.has(part)) out.push(make("span", { class: `name ${roles.get(part)}` }, part));
    else if (part) out.push(part);
  }
  return out;
}

/** Scroll a box, and nothing around it, so that a part of it is visible. */
function keepInView(box, part) {
  const [outer, inner] = [box.getBoundingClientRect(), part.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    box.scrollTop += inner.top - outer.top - box.clientHeight / 3;
  }
  if (box.classList.contains("code")) return;
  if (inner.left < outer.left || inner.right > outer.right) box.scrollLeft += inner.left - outer.left - 20;
}

/** Return ``rgb(1, 2, 3)`` or ``color(srgb .1 .2 .3)`` as three numbers up to 255. */
function rgb(text) {
  const numbers = text.match(/[\d.]+(e-?\d+)?/g).map(Number).slice(0, 3);
  return text.startsWith("color(") ? numbers.map((part) => part * 255) : numbers;
}

function mixed(one, other, part) {
  return one.map((value, i) => value + (other[i] - value) * part);
}

function css(colour) {
  return `rgb(${colour.map(Math.round).join(",")})`;
}

function stripes(pen, places, side, colour, direction) {
  pen.strokeStyle = colour;
  pen.lineWidth = Math.max(1, side / 8);
  pen.beginPath();
  for (const [x, y] of places) {
    if (direction > 0) { pen.moveTo(x, y + side); pen.lineTo(x + side, y); }
    else { pen.moveTo(x, y); pen.lineTo(x + side, y + side); }
  }
  pen.stroke();
}

function dot(pen, x, y, side, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x + side / 2, y + side / 2, side / 3, 0, 2 * Math.PI);
  pen.fill();
}

/** Put a player into the element that contains the running script. */
function play(style, data) {
  const name = ".puzzles-player";
  const mine = document.currentScript?.closest(name);
  const hosts = mine ? [mine] : [...document.querySelectorAll(name)].filter((host) => host.textContent.includes(data));
  for (const host of hosts) {
    if (host.stage) continue;
    host.stage = unpacked(data).then((run) => new Stage(host, run, style)).catch((error) => {
      host.querySelector(".still em").textContent = `This browser cannot play the run: ${error.message}`;
    });
  }
}

if (typeof module === "object" && typeof document === "undefined") {
  module.exports = {
    unpacked, arrayOf, coordinates, spread, numberText, address, kindText, namesAt, lanesChanged, turnsAt, callers,
    storedAt, switchedOffBy, laneText, nextAccess, nextChange, isBroad, overLoop, firstWrong, firstUndefined, firstProblem, range, ends, heat, linesOf, wrapped, ticks,
  };
}
