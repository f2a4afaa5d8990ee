(() => {
  const root = document.querySelector('#wrap') || document.body;
  const own = e => Array.from(e.childNodes).filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join(' ')
    .trim();
  const refs = [], lines = [];
  for (const e of root.querySelectorAll('*')) {
    if (e.closest('#query') || ['SCRIPT', 'STYLE', 'OPTION', 'BR'].includes(e.tagName)) continue;
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (box.width < 1 || box.height < 1 || style.visibility === 'hidden' || style.display === 'none') continue;
    const tag = e.tagName.toLowerCase(), text = own(e);
    const control = ['input', 'button', 'select', 'textarea', 'a'].includes(tag) || e.ownerSVGElement || e.onclick
      || style.cursor === 'pointer';
    if (!text && !control) continue;
    let said = tag;
    if (tag === 'input') said += ' ' + e.type;
    if (text) said += ' "' + text + '"';
    if (['checkbox', 'radio'].includes(e.type)) said += e.checked ? ' checked' : ' not checked';
    else if (tag === 'select') said += ' = "' + (e.selectedOptions[0] ? e.selectedOptions[0].text : '') + '" of '
      + Array.from(e.options).slice(0, 30).map(o => '"' + o.text + '"').join(', ');
    else if (tag === 'input' || tag === 'textarea') said += ' = "' + e.value + '"';
    const label = e.closest('label') || (e.id && document.querySelector('label[for="' + e.id + '"]'));
    if (label && label !== e && own(label)) said += ' labelled "' + own(label) + '"';
    if (e.ownerSVGElement) said += ' ' + ['fill', 'r', 'width'].filter(a => e.getAttribute(a))
      .map(a => a + '=' + e.getAttribute(a)).join(' ');
    else if (e.className && typeof e.className === 'string') said += ' (' + e.className.trim() + ')';
    lines.push('[' + refs.length + '] ' + said);
    refs.push(e);
    if (refs.length >= 100) break;
  }
  window.__refs = refs;
  const task = core.getUtterance();
  return {task: typeof task === 'string' ? task : task.utterance, lines: lines, done: WOB_DONE_GLOBAL,
          reward: WOB_RAW_REWARD_GLOBAL, reason: WOB_REWARD_REASON};
})()
