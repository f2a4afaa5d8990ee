"use strict";
// Each plot's specification is in the page as JSON. Colours are CSS variables, so a change of theme needs no redraw.
(async () => {
  const config = JSON.parse(document.getElementById("plot-config").textContent);
  const options = { renderer: "svg", actions: false, ast: true, tooltip: { theme: "custom" } };
  const plots = [...document.querySelectorAll(".plot")];
  const below = { layout: { top: { direction: "vertical" } } };     // several legends one below the other
  const narrower = [{}, below, ...[4, 3, 2, 1].map((columns) => ({ ...below, columns }))];

  const fits = (plot) => {
    const edge = plot.getBoundingClientRect().right + 0.5;
    return [...plot.querySelectorAll(".role-legend text")].every((t) => t.getBoundingClientRect().right <= edge);
  };
  // A legend is not broken into lines by itself: it is given fewer columns until none of its texts is cut off.
  const draw = async (plot) => {
    const text = document.getElementById(plot.dataset.spec).textContent;
    for (const legend of narrower) {
      const columns = legend.columns ? { columns: legend.columns } : {};
      const own = (key, value) => key === "legend" && value ? { ...value, ...columns } : value;
      plot.view?.finalize();
      const whole = { ...config, legend: { ...config.legend, ...legend } };
      plot.view = (await vegaEmbed(plot, JSON.parse(text, own), { ...options, config: whole })).view;
      plot.dataset.legend = narrower.indexOf(legend);
      if (fits(plot)) return;
    }
  };
  const drawn = await Promise.all(plots.map(async (plot) => {
    try {
      await draw(plot);
      return true;
    } catch (error) {
      plot.classList.add("failed");
      plot.textContent = "This plot could not be drawn (" + error.message + "). Its numbers are in the CSV below.";
      return false;
    }
  }));
  document.documentElement.dataset.drawn = drawn.filter(Boolean).length + "/" + plots.length;

  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => plots.filter((p) => p.view && (p.dataset.legend !== "0" || !fits(p))).forEach(draw), 200);
  });
})();
// Closed details are opened for printing.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
