// The dashboard. What comes from outside becomes text, never markup.
"use strict";

const CALLS_KEPT = 5000;
const ROW_HEIGHT = 18;
const MARGIN = 110;
const SVG = "http://www.w3.org/2000/svg";

const calls = new Map(); // by call id, the oldest first
let state = { programs: [], engines: [], at_ms: 0 };
let chosen = null;
let rates = { at_ms: 0, tokens: new Map(), per_s: 0 };

const element = (id) => document.getElementById(id);

function make(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function shares(parts) {
  const bar = make("div", null, "shares");
  for (const [className, share] of parts) {
    const part = make("i", null, className);
    part.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    bar.append(part);
  }
  bar.title = parts.map(([name, share]) => `${name} ${Math.round(share * 100)}%`).join(", ");
  return bar;
}

function cell(content, className) {
  const made = make("td", content instanceof Node ? null : content, className);
  if (content instanceof Node) made.append(content);
  return made;
}

const seconds = (ms) => (ms / 1000).toFixed(2);

function life(program) {
  return Math.max(1, (program.ended_at_ms ?? state.at_ms) - program.started_at_ms);
}

function programShares(program) {
  const whole = life(program);
  const busy = Math.min(program.busy_ms, whole);
  const known = Math.max(1, program.service_ms + program.waiting_ms);
  const executing = (busy * program.service_ms) / known / whole;
  return [["executing", executing], ["waiting", busy / whole - executing], ["interrupted", 1 - busy / whole]];
}

function showEngines() {
  const rows = (state.engines ?? []).map((engine) => {
    const row = make("tr");
    row.append(
      cell(engine.engine_id), cell(engine.state), cell(engine.policy), cell(engine.models.join(", ")),
      cell(shares([["executing", engine.running / Math.max(1, engine.slots)]])),
      cell(shares([["held", engine.kv_usage]])),
      cell(engine.waiting, "number"), cell(engine.programs_held, "number"),
    );
    return row;
  });
  element("engines").tBodies[0].replaceChildren(...rows);
}

function showQueues() {
  const counts = new Map();
  for (const program of state.programs ?? []) {
    if (program.state === "running" && program.queue !== null) {
      counts.set(program.queue, (counts.get(program.queue) ?? 0) + 1);
    }
  }
  const most = Math.max(1, ...counts.values());
  const bars = [...counts].sort((one, other) => one[0] - other[0]).map(([queue, count]) => {
    const column = make("div");
    const bar = make("i");
    bar.style.height = `${(count / most) * 3}rem`;
    column.append(make("span", count), bar, make("span", `queue ${queue}`));
    return column;
  });
  element("queues").replaceChildren(...(bars.length ? bars : [make("p", "none")]));
}

function choose(programId) {
  chosen = programId;
  showPrograms();
  showGantt();
}

function showPrograms() {
  const order = (program) => (program.state === "running" ? 0 : 1);
  const listed = [...(state.programs ?? [])].sort(
    (one, other) => order(one) - order(other) || one.service_ms - other.service_ms,
  );
  const rows = listed.map((program) => {
    const row = make("tr");
    row.tabIndex = 0;
    row.dataset.program = program.program_id;
    row.ariaSelected = String(program.program_id === chosen);
    row.append(
      cell(program.program_id.slice(0, 8)), cell(program.name), cell(program.source), cell(program.state),
      cell(program.queue ?? "", "number"), cell(program.live_calls, "number"), cell(program.calls, "number"),
      cell(seconds(program.service_ms), "number"), cell(seconds(program.critical_path_ms), "number"),
      cell(seconds(program.waiting_ms), "number"), cell(shares(programShares(program))),
      cell(program.home_engine ?? program.engines.join(", ")),
    );
    return row;
  });
  const focused = document.activeElement?.dataset?.program;
  element("programs").tBodies[0].replaceChildren(...rows);
  if (focused) rows.find((row) => row.dataset.program === focused)?.focus();
}

function showTotals() {
  const running = (state.programs ?? []).filter((program) => program.state === "running");
  if (state.at_ms > rates.at_ms) {
    const tokens = new Map((state.programs ?? []).map((program) => [program.program_id, program.output_tokens]));
    let gained = 0;
    for (const [id, count] of tokens) gained += count - (rates.tokens.get(id) ?? 0);
    const per_s = rates.at_ms ? (gained * 1000) / (state.at_ms - rates.at_ms) : 0;
    rates = { at_ms: state.at_ms, tokens, per_s };
  }
  const totals = [
    ["programs", running.length],
    ["live calls", running.reduce((sum, program) => sum + program.live_calls, 0)],
    ["waiting in engines", (state.engines ?? []).reduce((sum, engine) => sum + engine.waiting, 0)],
    ["tokens/s", rates.per_s.toFixed(0)],
  ];
  element("totals").replaceChildren(...totals.map(([name, value]) => {
    const item = make("li");
    item.append(make("b", value), ` ${name}`);
    return item;
  }));
}

function heard(event) {
  let call = calls.get(event.call_id);
  if (!call) {
    call = { program_id: event.program_id, thread_id: event.thread_id, changes: [], ended_ms: null };
    calls.set(event.call_id, call);
    if (calls.size > CALLS_KEPT) calls.delete(calls.keys().next().value);
  }
  const kinds = {
    "call.submitted": "waiting", "call.held": "held", "call.started": "executing",
    "call.preempted": "preempted", "call.resumed": "executing",
  };
  if (kinds[event.type]) call.changes.push([event.at_ms, kinds[event.type]]);
  if (["call.finished", "call.failed", "call.cancelled"].includes(event.type)) call.ended_ms = event.at_ms;
}

function drawn(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function showGantt() {
  const program = (state.programs ?? []).find((each) => each.program_id === chosen);
  element("chosen").textContent = program ? program.name || program.program_id : "no program yet";
  const mine = [...calls.values()].filter((call) => call.program_id === chosen && call.changes.length);
  const threads = [...new Set(mine.map((call) => call.thread_id))];
  const svg = element("gantt");
  const width = svg.clientWidth || 800;
  svg.style.height = `${(threads.length + 1.5) * ROW_HEIGHT}px`;
  if (!mine.length) {
    svg.replaceChildren(drawn("text", { x: 0, y: 14 }, chosen ? "no call since this page was opened" : ""));
    return;
  }
  const begin = Math.min(...mine.map((call) => call.changes[0][0]));
  const open = mine.some((call) => call.ended_ms === null);
  const last = Math.max(...mine.map((call) => call.ended_ms ?? call.changes.at(-1)[0]));
  const end = Math.max(open ? Math.max(last, state.at_ms) : last, begin + 1);
  const x = (ms) => MARGIN + ((ms - begin) / (end - begin)) * (width - MARGIN - 10);
  const parts = [];
  threads.forEach((thread, row) => {
    parts.push(drawn("text", { x: 0, y: row * ROW_HEIGHT + 13 }, thread.slice(0, 16)));
  });
  for (const call of mine) {
    const y = threads.indexOf(call.thread_id) * ROW_HEIGHT + 2;
    const changes = [...call.changes].sort((one, other) => one[0] - other[0]);
    changes.forEach(([from, kind], index) => {
      const to = changes[index + 1]?.[0] ?? call.ended_ms ?? end;
      if (to > from) {
        const size = { x: x(from), y, width: Math.max(1, x(to) - x(from)), height: ROW_HEIGHT - 4 };
        parts.push(drawn("rect", { ...size, class: kind }));
      }
    });
  }
  const foot = threads.length * ROW_HEIGHT;
  parts.push(drawn("line", { x1: MARGIN, x2: width - 10, y1: foot + 2, y2: foot + 2 }));
  parts.push(drawn("text", { x: MARGIN, y: foot + 16 }, "0 s"));
  parts.push(drawn("text", { x: width - 60, y: foot + 16 }, `${seconds(end - begin)} s`));
  svg.replaceChildren(...parts);
}

function show() {
  showTotals();
  showEngines();
  showQueues();
  showPrograms();
  showGantt();
}

// Rows come anew every second, and a click needs the same row twice: the first touch counts.
element("programs").tBodies[0].addEventListener("pointerdown", (event) => {
  const row = event.target.closest("tr");
  if (row) choose(row.dataset.program);
});
element("programs").tBodies[0].addEventListener("keydown", (event) => {
  const row = event.target.closest("tr");
  if (row && event.key === "Enter") choose(row.dataset.program);
});

const source = new EventSource("page/stream");
source.addEventListener("state", (event) => {
  state = JSON.parse(event.data);
  const missing = state.programs === null ? "the process table does not answer"
    : state.engines === null ? "the load balancer does not answer" : "";
  element("connection").textContent = missing || "live";
  element("connection").className = missing ? "lost" : "";
  if (chosen === null && state.programs?.length) chosen = state.programs.at(-1).program_id;
  show();
});
source.addEventListener("call", (event) => heard(JSON.parse(event.data)));
source.addEventListener("error", () => {
  element("connection").textContent = "the gateway cannot be reached";
  element("connection").className = "lost";
});
window.addEventListener("resize", showGantt);
