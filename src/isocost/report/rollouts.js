// The filters of the rollouts, and arrow keys between them. Every rollout is in the page: a filter only hides some.
(() => {
  const viewer = document.querySelector(".viewer");
  if (!viewer) return;
  const controls = viewer.querySelector(".filters");
  const all = [...viewer.querySelectorAll("details.rollout")];
  const matching = controls.querySelector(".matching");
  const runs = [...new Set(all.map((r) => r.dataset.run))];
  const value = (name) => {
    const found = controls.querySelector(`input[name="${name}"]:checked`) || controls.querySelector(`select[name="${name}"]`);
    return found ? found.value : "";
  };
  const fits = {
    outcome: (r, x) => r.dataset.outcome === x,
    run: (r, x) => r.dataset.run === runs[Number(x)],
    update: (r, x) => r.dataset.update === x,
    faults: (r, x) => x === "any" ? r.dataset.faults !== "none" : r.dataset.faults.split(" ").includes(x),
  };
  const chosen = (r, but) => Object.keys(fits).every((name) => name === but || !value(name) || fits[name](r, value(name)));
  const update = () => {
    let left = 0;
    for (const r of all) {
      const fit = chosen(r);
      r.parentElement.hidden = !fit;
      left += fit;
    }
    matching.textContent = left === 0 ? "No rollout fits these filters" : `${left} of ${all.length} rollouts shown`;
    const others = all.filter((r) => chosen(r, "outcome"));
    for (const chip of controls.querySelectorAll("input[name=outcome]")) {
      const fit = others.filter((r) => !chip.value || r.dataset.outcome === chip.value).length;
      chip.parentElement.querySelector("small").textContent = fit;
      chip.parentElement.classList.toggle("none", fit === 0);
    }
  };
  const visible = () => all.filter((r) => !r.parentElement.hidden);
  controls.addEventListener("change", update);
  controls.addEventListener("click", (event) => {
    const which = event.target.dataset && event.target.dataset.all;
    if (which) visible().forEach((r) => { r.open = which === "open"; });
  });
  viewer.addEventListener("keydown", (event) => {
    const now = event.target.closest("details.rollout > summary");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!now || (!step && event.key !== "Home" && event.key !== "End")) return;
    const list = visible();
    const at = list.indexOf(now.parentElement);
    const to = event.key === "Home" ? 0 : event.key === "End" ? list.length - 1 : at + step;
    const next = list[Math.min(Math.max(to, 0), list.length - 1)];
    event.preventDefault();
    next.querySelector("summary").focus();
  });
  const linked = () => {
    const found = document.getElementById(location.hash.slice(1));
    if (found && found.matches("details.rollout")) found.open = true;
  };
  window.addEventListener("hashchange", linked);
  linked();
  controls.hidden = false;
  update();
})();
