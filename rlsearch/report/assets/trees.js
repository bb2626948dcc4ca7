// The rollout viewer: choose a step and a question, walk the tree, read a path with its credit by token.
(() => {
  const data = JSON.parse(byId("tree-data").textContent);
  if (!byId("viewer") || !data.steps.length) return;
  const WIDTHS = { prompt: 92, think: 88, search: 134, information: 90, answer: 100, other: 90 };
  const GAP = 15, ROW = 42, HEAD = 24;
  const NAMES = { prompt: "prompt", think: "thought", search: "search", information: "results", answer: "answer", other: "other" };
  const now = { step: data.steps.length - 1, tree: 0, node: 0 };

  /** A packed node with its columns unpacked: per token its text, sampled, logp and advantage. */
  function unpack(packed, index) {
    const tokens = packed.t.map((id) => ({ text: data.strings[id], sampled: false, logp: null, advantage: null }));
    let at = 0;
    packed.m.forEach((length, run) => { for (let i = 0; i < length; i++) tokens[at++].sampled = run % 2 === 1; });
    for (const [start, ...values] of packed.l || []) values.forEach((v, i) => { tokens[start + i].logp = v / 100; });
    at = 0;
    const runs = packed.a || [];
    for (let r = 0; r < runs.length; r += 2) for (let i = 0; i < runs[r + 1]; i++) tokens[at++].advantage = runs[r];
    const credited = tokens.filter((t) => t.sampled && t.advantage !== null);
    const mean = credited.length ? credited.reduce((sum, t) => sum + t.advantage, 0) / credited.length : null;
    return {
      index, parent: packed.p, kind: data.kinds[packed.k], reward: packed.r === undefined ? null : packed.r,
      searches: packed.s, tokens, mean, observed: !tokens.some((t) => t.sampled), children: [],
    };
  }

  function grow(packed) {
    const nodes = packed.n.map(unpack);
    for (const node of nodes) if (node.parent >= 0) nodes[node.parent].children.push(node.index);
    return nodes;
  }

  const leaves = (packed) => {
    const parents = new Set(packed.n.map((node) => node.p));
    return packed.n.filter((_, i) => !parents.has(i));
  };
  const rewards = (packed) => leaves(packed).map((leaf) => leaf.r).filter((r) => r !== undefined);
  const mean = (xs) => xs.reduce((a, b) => a + b, 0) / xs.length;

  /** Colour of an advantage: blue above zero, orange below, stronger further from it. */
  function tint(advantage) {
    const scale = data.steps[now.step].scale;
    if (advantage === null || !advantage || !scale) return "";
    const share = Math.min(1, Math.abs(advantage) / scale);
    return `rgb(var(--${advantage > 0 ? "plus" : "minus"}) / ${(0.12 + 0.5 * share).toFixed(3)})`;
  }

  function pathTo(nodes, index) {
    const path = [];
    for (let i = index; i >= 0; i = nodes[i].parent) path.unshift(nodes[i]);
    return path;
  }

  const snippet = (node) => node.tokens.map((t) => t.text).join("").replace(/<\/?\w+>/g, " ").replace(/\s+/g, " ").trim().slice(0, 80);

  /** Column by depth, row by leaf; a parent stands midway between its first and last child; boxes fit `room` if they can. */
  function layout(nodes, room) {
    const depth = nodes.map(() => 0), y = nodes.map(() => 0), widths = [];
    nodes.forEach((node, i) => {
      depth[i] = node.parent < 0 ? 0 : depth[node.parent] + 1;
      widths[depth[i]] = Math.max(widths[depth[i]] || 0, WIDTHS[node.kind]);
    });
    const natural = widths.reduce((a, b) => a + b, 0);
    const fit = (room - 12 - GAP * widths.length) / natural;
    const stretch = fit < 0.72 ? 1 : Math.min(1.5, fit);
    const x = [1], wide = nodes.map((node) => Math.floor(WIDTHS[node.kind] * stretch));
    widths.forEach((width, d) => { x[d + 1] = x[d] + Math.floor(width * stretch) + GAP; });
    let row = 0;
    const visit = (i) => {
      const inner = nodes[i].children.map(visit);
      y[i] = inner.length ? (inner[0] + inner[inner.length - 1]) / 2 : HEAD + ROW * row++;
      return y[i];
    };
    nodes.forEach((node, i) => { if (node.parent < 0) visit(i); });
    return { depth, x, y, wide, width: Math.max(room - 8, x[widths.length]), height: HEAD + ROW * row, rows: row };
  }

  let nodes = [], boxes = [], edges = [];

  function drawTree() {
    const packed = data.steps[now.step].trees[now.tree];
    nodes = grow(packed);
    const outcomes = make("div", { className: "outcomes" }, make("div", { className: "outcome" }, make("b", {}, "reward"), make("i", {}, "searches")));
    const scroller = make("div", { className: "scroller" });
    byId("tree").replaceChildren(scroller, outcomes);
    const place = layout(nodes, scroller.clientWidth);
    const svg = makeSvg("svg", { width: place.width, height: place.height, "aria-hidden": "true" });
    const canvas = make("div", { className: "canvas", role: "tree", "aria-label": "Rollout tree" }, svg);
    canvas.style.width = place.width + "px";
    canvas.style.height = outcomes.style.height = place.height + "px";
    scroller.append(canvas);
    edges = nodes.map((node, i) => {
      const right = place.x[place.depth[i]] + place.wide[i], middle = place.y[i] + 17;
      if (!node.children.length) {
        svg.append(makeSvg("path", { class: "lead-line", d: `M${right + 6} ${middle}H${place.width}` }));
        const reward = make("b", {}, node.reward === null ? "\u2013" : node.reward.toFixed(2));
        const outcome = make("div", { className: "outcome", onclick: () => choose(i) }, reward, make("i", {}, String(node.searches)));
        outcome.style.top = place.y[i] + "px";
        outcomes.append(outcome);
      }
      if (node.parent < 0) return null;
      const from = place.x[place.depth[node.parent]] + place.wide[node.parent], start = place.y[node.parent] + 17;
      const to = place.x[place.depth[i]], bend = to - GAP / 2;
      const edge = makeSvg("path", { class: "edge", d: `M${from} ${start}H${bend - 7}C${bend} ${start} ${bend} ${middle} ${bend + 7} ${middle}H${to}` });
      svg.append(edge);
      return edge;
    });
    boxes = nodes.map((node, i) => {
      const box = make("button", {
        type: "button", className: "node" + (node.observed ? " observed" : ""), role: "treeitem", tabIndex: -1,
        "aria-level": place.depth[i] + 1, onclick: () => choose(i), "data-node": i,
        "aria-label": describe(node),
      }, make("b", {}, NAMES[node.kind]), make("span", {}, snippet(node)));
      box.style.left = place.x[place.depth[i]] + "px";
      box.style.top = place.y[i] + "px";
      box.style.width = place.wide[i] + "px";
      if (!node.observed && node.mean) box.style.backgroundImage = `linear-gradient(${tint(node.mean)}, ${tint(node.mean)})`;
      return box;
    });
    canvas.append(...boxes);
    canvas.addEventListener("keydown", walk(place));
    byId("asked").textContent = packed.q;
    const solved = rewards(packed);
    byId("golden").textContent = `Golden answers: ${packed.g.join(" | ") || "none"}` +
      (solved.length ? `. Mean reward ${mean(solved).toFixed(2)} over ${leaves(packed).length} leaves.` : "");
  }

  function describe(node) {
    const credit = node.mean === null ? "" : `, mean advantage ${signed(node.mean)}`;
    const end = node.children.length ? "" : `, reward ${node.reward === null ? "none" : node.reward.toFixed(2)}, ${node.searches} searches`;
    return `${NAMES[node.kind]}: ${snippet(node)}${credit}${end}`;
  }

  /** Arrow keys: left to the parent, right to the first child, up and down to the nearest box of the same column. */
  function walk(place) {
    return (event) => {
      const node = nodes[now.node];
      const column = nodes.filter((n) => place.depth[n.index] === place.depth[now.node]).sort((a, b) => place.y[a.index] - place.y[b.index]);
      const at = column.indexOf(node);
      const moves = {
        ArrowLeft: nodes[node.parent], ArrowRight: nodes[node.children[0]], ArrowUp: column[at - 1], ArrowDown: column[at + 1],
        Home: nodes[0], End: nodes[nodes.length - 1],
      };
      if (!(event.key in moves)) return;
      event.preventDefault();
      if (moves[event.key]) { choose(moves[event.key].index); boxes[now.node].focus(); }
    };
  }

  function choose(index) {
    now.node = index;
    const path = pathTo(nodes, index), on = new Set(path.map((node) => node.index));
    boxes.forEach((box, i) => {
      box.classList.toggle("on", on.has(i));
      box.setAttribute("aria-selected", i === index);
      box.tabIndex = i === index ? 0 : -1;
    });
    edges.forEach((edge, i) => { if (edge) edge.classList.toggle("on", on.has(i)); });
    edges.forEach((edge, i) => { if (edge && on.has(i)) edge.parentNode.append(edge); });
    const leaf = nodes[index].children.length === 0;
    byId("path-title").textContent = leaf ? "The rollout that ends here" : `The path to this ${NAMES[nodes[index].kind]}`;
    byId("path").replaceChildren(...path.map(drawStep), ...(leaf ? [drawEnd(nodes[index])] : []));
    cursor = -1;
    hideTip();
  }

  function drawStep(node) {
    const sampled = node.tokens.filter((t) => t.sampled).length;
    const count = node.observed ? `${node.tokens.length} tokens, not sampled` : `${sampled} sampled`;
    const head = make("div", {}, make("b", {}, NAMES[node.kind]), count);
    if (node.mean !== null) head.append(make("div", {}, `advantage ${signed(node.mean)}`));
    const text = make("div", { className: "tokens" + (node.observed ? " observed" : "") });
    for (const token of node.tokens) text.append(drawToken(token));
    return make("div", { className: "step" }, head, text);
  }

  function drawToken(token) {
    const span = make("span", { className: token.sampled ? "own" : "seen" });
    // A sampled line break is a decision of the policy: it gets a mark that can be pointed at.
    token.text.split("\n").forEach((part, i) => {
      if (i) span.append(...(token.sampled ? [make("span", { className: "mark" }, "\u23ce")] : []), "\n");
      span.append(part);
    });
    span.style.backgroundColor = tint(token.advantage);
    span.token = token;
    return span;
  }

  function drawEnd(leaf) {
    const reward = leaf.reward === null ? "no reward" : `reward ${leaf.reward.toFixed(2)}`;
    return make("p", { className: "end" }, make("b", {}, reward), ` after ${leaf.searches} ${leaf.searches === 1 ? "search" : "searches"}`);
  }

  // Tooltips, for the pointer and for a token cursor moved by the arrow keys.
  const tip = byId("tip"), path = byId("path");
  let cursor = -1;
  const hideTip = () => { tip.hidden = true; path.querySelectorAll(".at").forEach((s) => s.classList.remove("at")); };

  function showTip(span) {
    const { text, sampled, logp, advantage } = span.token;
    const lines = [sampled ? "sampled by the policy" : "not sampled"];
    if (logp !== null) lines.push(`log-probability ${signed(logp)} (p = ${Math.exp(logp).toFixed(2)})`);
    if (advantage !== null) lines.push(`advantage ${signed(advantage)}`);
    tip.replaceChildren(make("code", {}, JSON.stringify(text)), "\n" + lines.join("\n"));
    tip.hidden = false;
    const box = span.getClientRects()[0] || span.getBoundingClientRect(), size = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(box.left, innerWidth - size.width - 8)) + "px";
    tip.style.top = (box.top - size.height - 6 > 4 ? box.top - size.height - 6 : box.bottom + 6) + "px";
  }

  const tokenOf = (target) => { let s = target; while (s && s !== path && !s.token) s = s.parentNode; return s && s.token ? s : null; };
  path.addEventListener("pointerover", (event) => { const span = tokenOf(event.target); if (span) showTip(span); });
  path.addEventListener("pointerleave", hideTip);
  path.addEventListener("blur", hideTip);
  path.addEventListener("keydown", (event) => {
    const spans = [...path.querySelectorAll(".own, .seen")];
    const moves = { ArrowLeft: cursor - 1, ArrowRight: cursor + 1, Home: 0, End: spans.length - 1 };
    if (event.key === "Escape") hideTip();
    if (!(event.key in moves) || !spans.length) return;
    event.preventDefault();
    hideTip();
    cursor = Math.max(0, Math.min(spans.length - 1, moves[event.key]));
    spans[cursor].classList.add("at");
    spans[cursor].scrollIntoView({ block: "nearest" });
    showTip(spans[cursor]);
  });

  function drawLegend() {
    const scale = data.steps[now.step].scale;
    const swatches = make("span", { className: "swatches", "aria-hidden": "true" });
    for (let i = -4; i <= 4; i++) {
      const swatch = make("i", {});
      swatch.style.backgroundColor = tint((i / 4) * scale) || "transparent";
      swatches.append(swatch);
    }
    const words = scale ? ["advantage", `\u2212${scale.toFixed(2)}`, swatches, `+${scale.toFixed(2)}`] : ["every advantage is zero at this step"];
    byId("legend").replaceChildren(...words.map((w) => (typeof w === "string" ? make("span", {}, w) : w)));
  }

  function chooseTree(index) {
    now.tree = index;
    byId("question").value = index;
    byId("previous").disabled = index === 0;
    byId("next").disabled = index === data.steps[now.step].trees.length - 1;
    drawTree();
    drawLegend();
    const ends = nodes.filter((node) => !node.children.length);
    choose(ends.reduce((best, leaf) => ((leaf.reward ?? -Infinity) > (best.reward ?? -Infinity) ? leaf : best)).index);
  }

  /** The same question again where the step has it; else the one whose leaves differ most, which teaches most. */
  function chooseStep(index, question) {
    now.step = index;
    const trees = data.steps[index].trees;
    byId("question").replaceChildren(...trees.map((packed, i) => {
      const got = rewards(packed);
      return make("option", { value: i }, `${got.length ? mean(got).toFixed(2) : "\u2013"}  ${packed.q.replace(/\s+/g, " ").slice(0, 200)}`);
    }));
    const spread = trees.map((packed) => { const r = rewards(packed); return r.length ? mean(r.map((x) => (x - mean(r)) ** 2)) : -1; });
    const same = trees.findIndex((packed) => packed.q === question);
    chooseTree(same >= 0 ? same : spread.indexOf(Math.max(...spread)));
  }

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    drawTree();
    choose(now.node);
  });
  byId("viewer").hidden = false;
  byId("step").replaceChildren(...data.steps.map((step, i) => make("option", { value: i }, String(step.step))));
  byId("step").value = now.step;
  byId("step").addEventListener("change", (event) => chooseStep(Number(event.target.value), data.steps[now.step].trees[now.tree].q));
  byId("question").addEventListener("change", (event) => chooseTree(Number(event.target.value)));
  byId("previous").addEventListener("click", () => chooseTree(now.tree - 1));
  byId("next").addEventListener("click", () => chooseTree(now.tree + 1));
  chooseStep(now.step, null);
})();
