"use strict";
// Each plot's specification is in the page as JSON. Colours are CSS variables, so a change of theme needs no redraw.
(async () => {
  const config = JSON.parse(document.getElementById("plot-config").textContent);
  const options = { renderer: "svg", actions: false, ast: true, config, tooltip: { theme: "custom" } };
  const plots = [...document.querySelectorAll(".plot")];
  const drawn = await Promise.all(plots.map(async (plot) => {
    try {
      const spec = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
      await vegaEmbed(plot, spec, options);
      return true;
    } catch (error) {
      plot.classList.add("failed");
      plot.textContent = "This plot could not be drawn (" + error.message + "). Its numbers are in the CSV below.";
      return false;
    }
  }));
  document.documentElement.dataset.drawn = drawn.filter(Boolean).length + "/" + plots.length;
})();
// Closed details are opened for printing.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
