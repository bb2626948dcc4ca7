// A cursor that reads one step in all charts of a stage, by pointer or arrow keys.
(() => {
  const records = JSON.parse(byId("chart-data").textContent);
  const charts = [...document.querySelectorAll("svg[data-chart]")].map((svg) => ({
    svg, record: records[svg.dataset.chart], output: svg.closest("figure").querySelector("output"),
    cursor: svg.querySelector(".cursor"),
  }));
  const place = ([low, high, start, end], value, log) => {
    const f = log ? Math.log10 : (x) => x;
    return start + ((f(value) - f(low)) / (f(high) - f(low))) * (end - start);
  };

  /** Index of the known value whose step is nearest. */
  function nearest(series, step) {
    let best = -1;
    series.steps.forEach((s, i) => {
      if (series.values[i] !== null && (best < 0 || Math.abs(s - step) < Math.abs(series.steps[best] - step))) best = i;
    });
    return best;
  }

  function clear(stage) {
    for (const chart of charts) {
      if (chart.record.stage !== stage) continue;
      chart.cursor.replaceChildren();
      chart.output.textContent = "last " + chart.record.last;
    }
  }

  function read(stage, step) {
    for (const { record, cursor, output } of charts) {
      if (record.stage !== stage) continue;
      const x = place(record.x, step, false);
      const marks = [makeSvg("path", { d: `M${x} ${record.top}V${record.bottom}` })];
      const words = [];
      record.series.forEach((series, c) => {
        const i = nearest(series, step);
        if (i < 0) return;
        const value = series.values[i], at = series.steps[i];
        marks.push(makeSvg("circle", { class: `c${c % 5}`, r: 4, cx: place(record.x, at, false), cy: place(record.y, value, record.log) }));
        const when = at === step ? "" : ` at ${at}`;
        words.push((record.series.length > 1 ? series.label + " " : "") + short(value) + when);
      });
      cursor.replaceChildren(...marks);
      output.textContent = `step ${step}: ` + words.join(" \u00b7 ");
    }
  }

  for (const { svg, record, output } of charts) {
    const steps = record.series[0].steps;
    let index = steps.length - 1;
    const show = (i) => { index = Math.max(0, Math.min(steps.length - 1, i)); read(record.stage, steps[index]); };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const units = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const [low, high, start, end] = record.x;
      const step = low + ((units - start) / (end - start)) * (high - low);
      let best = 0;
      steps.forEach((s, i) => { if (Math.abs(s - step) < Math.abs(steps[best] - step)) best = i; });
      show(best);
    });
    svg.addEventListener("pointerleave", () => clear(record.stage));
    // Only the focused chart speaks: all of a stage change together.
    svg.addEventListener("focus", () => output.setAttribute("aria-live", "polite"));
    svg.addEventListener("blur", () => { output.setAttribute("aria-live", "off"); clear(record.stage); });
    svg.addEventListener("keydown", (event) => {
      const stride = event.shiftKey ? 10 : 1;
      const moves = { ArrowLeft: index - stride, ArrowRight: index + stride, Home: 0, End: steps.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(moves[event.key]);
    });
  }
})();
