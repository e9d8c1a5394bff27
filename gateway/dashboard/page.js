"use strict";
// Asks the gateway once a second for its state and its metrics, and draws what it says.
// Percentiles are of the last minute: the difference of two readings of the histograms.
const KEEP_MS = 300000, WINDOW_MS = 60000;
const $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const history = [];  // {at, values} of /metrics, the oldest first
let chosen = null;
let latest = null;

function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function shape(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const ms = us => us >= 1e6 ? (us / 1e6).toFixed(2) + " s" : (us / 1e3).toFixed(us < 1e4 ? 1 : 0) + " ms";
const seconds = s => s === null ? "–" : ms(s * 1e6);
const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(1) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(1) + " MB"
  : n >= 1e3 ? (n / 1e3).toFixed(0) + " kB" : n.toFixed(0) + " B";

// Prometheus text: {name: [{labels, value}]}.
function parse(text) {
  const all = {};
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const pair of (found[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[pair[1]] = pair[2];
    (all[found[1]] = all[found[1]] || []).push({labels, value: Number(found[3])});
  }
  return all;
}
const fits = (labels, wanted) => Object.entries(wanted).every(([key, value]) => labels[key] === value);
const sum = (values, name, wanted = {}) =>
  (values[name] || []).filter(s => fits(s.labels, wanted)).reduce((total, s) => total + s.value, 0);

function before() {
  const now = history[history.length - 1].at;
  return history.find(reading => reading.at >= now - WINDOW_MS) || history[0];
}
const rate = (name, wanted) => {
  const first = before(), last = history[history.length - 1];
  return last.at === first.at ? 0
    : Math.max(0, sum(last.values, name, wanted) - sum(first.values, name, wanted)) * 1000 / (last.at - first.at);
};
// [upper edge, events up to it] of a histogram's last minute.
function buckets(name, wanted, from, to) {
  const edges = new Map();
  for (const [values, sign] of [[to, 1], [from, -1]]) {
    for (const s of values[name + "_bucket"] || []) {
      if (!fits(s.labels, wanted)) continue;
      const edge = s.labels.le === "+Inf" ? Infinity : Number(s.labels.le);
      edges.set(edge, (edges.get(edge) || 0) + sign * s.value);
    }
  }
  return [...edges].sort((a, b) => a[0] - b[0]);
}
function quantile(list, q) {
  const total = list.length ? list[list.length - 1][1] : 0;
  if (total <= 0) return null;
  let edge = 0, below = 0;
  for (const [upper, count] of list) {
    if (count >= q * total) {
      if (upper === Infinity) return edge;
      return edge + (upper - edge) * (q * total - below) / Math.max(1e-9, count - below);
    }
    edge = upper; below = count;
  }
  return edge;
}
function kept(list, target) {
  const total = list.length ? list[list.length - 1][1] : 0;
  const at = list.find(([upper]) => upper >= target - 1e-9);
  return total > 0 && at ? at[1] / total : null;
}

function drawLatency(data) {
  const from = before().values, to = history[history.length - 1].values;
  const rows = [];
  for (const tier of data.targets.tiers) {
    for (const [what, metric, target] of [["TTFT", "baton_time_to_first_token_seconds", tier.ttft_ms],
                                          ["ITL", "baton_inter_token_latency_seconds", tier.itl_ms]]) {
      const list = buckets(metric, {tier: tier.name}, from, to);
      const share = kept(list, target / 1000);
      const good = share === null || share >= data.targets.objective;
      rows.push(el("tr", {}, el("td", {}, tier.name), el("td", {class: "left"}, what),
        ...[.5, .9, .99].map(q => el("td", {}, seconds(quantile(list, q)))),
        el("td", {}, ms(target * 1000)),
        el("td", {class: share === null ? "" : good ? "good" : "bad"},
          share === null ? "–" : (share * 100).toFixed(1) + " %" + (good ? "" : " !"))));
    }
  }
  $("latency").tBodies[0].replaceChildren(...rows);
}

function drawNow(data) {
  const to = history[history.length - 1].values;
  const entries = [
    ["waiting", data.status.queued], ["in work", data.status.running],
    ...(data.status.pools || []).flatMap((pool, _, all) => ["prefill", "decode"].map(role =>
      [(all.length > 1 ? pool.model + ": " : "") + `${role} nodes (wanted)`, `${pool[role].nodes} (${pool[role].wanted})`])),
    ["requests a second", rate("baton_requests_total").toFixed(2)],
    ["tokens a second", rate("baton_generation_tokens_total").toFixed(1)],
    ["refused in all", sum(to, "baton_requests_total", {status: "refused"})],
    ["failed in all", sum(to, "baton_requests_total", {status: "failed"})],
    ["failovers in all", sum(to, "baton_failovers_total")],
    ["KV sent, last minute", bytes(data.requests.filter(r => r.ended_unix_ms >= Date.now() - WINDOW_MS)
      .reduce((total, r) => total + r.kv_bytes, 0))],
  ];
  $("now").replaceChildren(...entries.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

// A text of one line, at most `most` wide in an SVG that is shown; one that is cut has all of it as its title.
function line(svg, attributes, text, most) {
  const node = shape("text", attributes, text);
  svg.append(node);
  for (let size = text.length - 1; size > 0 && node.getComputedTextLength() > most; --size) node.textContent = text.slice(0, size) + "…";
  if (node.textContent !== text) node.append(shape("title", {}, text));
}

function drawPools(data) {
  const svg = $("pools"), width = Math.max(240, svg.clientWidth || 800), card = Math.min(300, width * 0.44);
  const sides = ["prefill", "decode"].map(role => data.status.nodes.filter(node => node.role === role));
  const details = node => node.role === "prefill"
    ? [`${node.queued_tokens} tokens queued`, `${node.credits_used} of ${node.credit_limit} credits`]
    : [`batch ${node.running} of ${node.max_batch}`, `step ${node.decode_step_ms.toFixed(1)} ms`];
  // Where a card is narrow the details have a line each.
  const lines = node => card < 260 ? details(node) : [details(node).join(", ")];
  const tall = card < 260 ? 88 : 70, row = tall + 14;
  const height = Math.max(1, ...sides.map(side => side.length)) * row + 8;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = height + "px";
  const place = new Map();
  sides.forEach((side, which) => side.forEach((node, i) => place.set(node.name, {
    x: which ? width - card : 0, y: i * row + 6, side: which})));
  const parts = [], texts = [];
  const flows = new Map();
  for (const r of data.requests) {
    if (r.prefill_node && r.decode_node && r.prefill_node !== r.decode_node)
      flows.set(r.prefill_node + "\n" + r.decode_node, (flows.get(r.prefill_node + "\n" + r.decode_node) || 0) + 1);
  }
  for (const [pair, count] of flows) {
    const [a, b] = pair.split("\n").map(name => place.get(name));
    if (!a || !b) continue;
    const x1 = card, x2 = width - card, y1 = a.y + tall / 2, y2 = b.y + tall / 2, middle = (x1 + x2) / 2;
    parts.push(shape("path", {d: `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`, fill: "none",
      stroke: "var(--transfer)", "stroke-opacity": .7, "stroke-width": 1 + 9 * count / data.requests.length}));
  }
  for (const node of data.status.nodes) {
    const at = place.get(node.name);
    const good = node.state === "alive";
    parts.push(shape("rect", {x: at.x + 1, y: at.y, width: card - 2, height: tall, rx: 6, fill: "var(--paper)",
      stroke: good ? `var(--${node.role})` : "var(--bad)"}));
    const total = Math.max(1, node.blocks_total), inner = card - 26, bottom = at.y + tall - 20;
    texts.push([{x: at.x + 12, y: at.y + 21}, node.name + (good ? "" : " (" + node.state + ")"), inner]);
    lines(node).forEach((text, i) => texts.push([{x: at.x + 12, y: at.y + 39 + 18 * i, class: "soft"}, text, inner]));
    let x = at.x + 12;
    parts.push(shape("rect", {x, y: bottom, width: inner, height: 10, fill: "var(--line)"}));
    const quarantined = node.blocks_quarantined || 0;
    for (const [count, colour] of [[node.blocks_in_use, "--prefill"], [node.blocks_granted, "--transfer"],
                                   [node.blocks_cached, "--decode"], [quarantined, "--bad"]]) {
      const w = inner * count / total;
      parts.push(shape("rect", {x, y: bottom, width: Math.max(0, w), height: 10, fill: `var(${colour})`}));
      x += w;
    }
  }
  sides.forEach((side, which) => {
    if (!side.length) texts.push([{x: which ? width - card : 0, y: 27, class: "soft"}, `No ${which ? "decode" : "prefill"} node is here.`, card]);
  });
  svg.replaceChildren(...parts);
  for (const [attributes, text, most] of texts) line(svg, attributes, text, most);
}

function bar(r, longest) {
  const node = el("div", {class: "bar", style: `width:${100 * r.total_us / longest}%`});
  const share = us => 100 * us / Math.max(1, r.total_us);
  let end = 0;
  for (const phase of r.phases) {
    node.append(el("span", {style: `margin-left:${share(phase.from_us - end)}%;` +
      `width:${share(phase.to_us - phase.from_us)}%;background:var(--${phase.name})`}));
    end = phase.to_us;
  }
  return node;
}
const tokens = r => `${r.prompt_tokens} (${r.cached_tokens} cached) + ${r.output_tokens}`;
const nodes = r => r.prefill_node === r.decode_node ? r.decode_node : `${r.prefill_node} → ${r.decode_node}`;

function drawRequests(data) {
  const longest = Math.max(1, ...data.requests.map(r => r.total_us));
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.id : null;
  const none = el("tr", {}, el("td", {class: "none", colspan: 6}, "No request has ended yet."));
  $("requests").tBodies[0].replaceChildren(...(data.requests.length ? [] : [none]), ...data.requests.slice(0, 32).map(r => {
    const button = el("button", {class: "row", type: "button", "data-id": r.id, "aria-pressed": String(r.id === chosen)},
      r.id.slice(0, 8));
    button.onclick = () => { chosen = chosen === r.id ? null : r.id; draw(); };
    return el("tr", {}, el("td", {}, new Date(r.ended_unix_ms).toLocaleTimeString()), el("td", {}, button),
      el("td", {}, tokens(r)), el("td", {}, nodes(r)),
      el("td", {class: "left"}, el("div", {class: "length"}, bar(r, longest))),
      el("td", {class: r.how === "finished" ? "" : "bad"}, ms(r.total_us) + (r.how === "finished" ? "" : " " + r.how)));
  }));
  if (focused) {
    const again = document.querySelector(`button[data-id="${focused}"]`);
    if (again) again.focus({preventScroll: true});
  }
  const r = data.requests.find(entry => entry.id === chosen);
  if (!r) return $("one").replaceChildren();
  const width = Math.min(640, Math.max(280, $("one").clientWidth)), room = width - 170;  // beside names and times
  const total = Math.max(1, r.total_us), took = phase => ms(phase.to_us - phase.from_us);
  const svg = shape("svg", {viewBox: `0 0 ${width} ${r.phases.length * 28 + 8}`, role: "img",
    "aria-label": r.phases.map(phase => `${phase.name} ${took(phase)}`).join(", ")});
  r.phases.forEach((phase, i) => {
    const x = room * phase.from_us / total, w = Math.max(1, room * (phase.to_us - phase.from_us) / total);
    svg.append(shape("rect", {x: 90 + x, y: 6 + i * 28, width: w, height: 18, fill: `var(--${phase.name})`}),
      shape("text", {x: 0, y: 20 + i * 28}, phase.name),
      shape("text", {x: 96 + x + w, y: 20 + i * 28, class: "soft"}, took(phase)));
  });
  $("one").replaceChildren(el("p", {}, `Request ${r.id}: tier ${r.tier}, ${tokens(r)} tokens at ${nodes(r) || "no node"}, ` +
    `${r.ttft_us ? "first token after " + ms(r.ttft_us) : "no token came"}, ` +
    `${r.kv_bytes ? bytes(r.kv_bytes) + " of KV over " + r.transport : "no KV sent"}, attempts: ${r.attempts}, failovers: ${r.failovers}`), svg);
}

function drawTrends() {
  const draws = [["tokens a second", "baton_generation_tokens_total", true], ["requests waiting", "baton_num_requests_waiting", false],
                 ["requests in work", "baton_num_requests_running", false]];
  $("trends").replaceChildren(...draws.map(([title, metric, isRate]) => {
    const points = history.map((reading, i) => {
      if (!isRate) return [reading.at, sum(reading.values, metric)];
      const last = history[Math.max(0, i - 5)];
      return [reading.at, last === reading ? 0
        : Math.max(0, sum(reading.values, metric) - sum(last.values, metric)) * 1000 / (reading.at - last.at)];
    });
    const most = Math.max(1, ...points.map(p => p[1])), end = points[points.length - 1][0];
    const now = points[points.length - 1][1], told = value => value.toFixed(isRate && value < 100 ? 1 : 0);
    const svg = shape("svg", {viewBox: "0 0 300 104", role: "img", "aria-label": `${title}: ${told(now)} now, the axis ends at ${told(most)}`});
    svg.append(shape("line", {x1: 0, y1: 84, x2: 300, y2: 84, stroke: "var(--line)"}),
      shape("line", {x1: 0, y1: 18, x2: 300, y2: 18, stroke: "var(--line)", "stroke-dasharray": "2 4"}),
      shape("polyline", {fill: "none", stroke: "var(--prefill)", "stroke-width": 1.5, points: points.map(([at, value]) =>
        `${(300 - (end - at) / KEEP_MS * 300).toFixed(1)},${(84 - 66 * value / most).toFixed(1)}`).join(" ")}),
      shape("text", {x: 0, y: 12, class: "soft"}, told(most)),
      shape("text", {x: 0, y: 99, class: "soft"}, "5 minutes ago"),
      shape("text", {x: 300, y: 99, class: "soft", "text-anchor": "end"}, "now"));
    if (points.every(([, value]) => value === 0))
      svg.append(shape("text", {x: 150, y: 56, class: "soft", "text-anchor": "middle"}, "none since this page was opened"));
    return el("div", {}, el("h3", {}, `${title}: ${told(now)}`), svg);
  }));
}

function draw() {
  if (!latest || !history.length) return;
  const s = latest.status;
  $("state").textContent = `${s.gateway}: ${s.ready ? "ready" : "not ready, no pair of nodes can serve"}; ` +
    `${s.nodes.filter(n => n.role === "prefill").length} prefill and ${s.nodes.filter(n => n.role === "decode").length} decode nodes; ` +
    s.models.map(m => m.id).join(", ");
  $("state").className = s.ready ? "good" : "bad";
  document.title = (s.ready ? "" : "! ") + "Baton";
  drawPools(latest); drawLatency(latest); drawNow(latest); drawTrends(); drawRequests(latest);
  const moved = latest.requests.filter(r => r.failovers > 0);
  $("failovers").replaceChildren(...(moved.length ? moved.map(r => el("li", {},
    `${new Date(r.ended_unix_ms).toLocaleTimeString()}: request ${r.id.slice(0, 8)} moved ${r.failovers} times and ${r.how}`))
    : [el("li", {}, "None among the last requests.")]));
}

async function look() {
  try {
    const [data, text] = await Promise.all([fetch("dashboard/data").then(a => a.json()), fetch("metrics").then(a => a.text())]);
    latest = data;
    const now = Date.now();
    history.push({at: now, values: parse(text)});
    while (history[0].at < now - KEEP_MS) history.shift();
    draw();
  } catch (problem) {
    $("state").textContent = "The gateway does not answer: " + problem.message;
    $("state").className = "bad";
  }
  setTimeout(look, 1000);
}
look();
