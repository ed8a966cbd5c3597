// Evaluates to a list of layout errors of the page in its window: elements that leave the window or
// overlap, and text that is hard to read. An expression that is evaluated in the page.
(() => {
  const faults = [];
  const SLACK = 1.5; // pixels: the boxes of glyphs are a little higher than the visible glyphs
  const CONTRAST_MIN = 4.5; // WCAG 2, level AA, for text of this size

  const isUnseen = element => Boolean(element.closest('.unseen, noscript, script')) ||
    !element.checkVisibility({ checkVisibilityCSS: true });
  const name = element => element.tagName.toLowerCase() + (element.id ? '#' + element.id : '') +
    ' "' + element.textContent.trim().slice(0, 40) + '"';
  const all = [...document.body.querySelectorAll('*')].filter(one => !isUnseen(one));

  // Nothing is cut off at the sides.
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) faults.push(`the page is ${wide} pixels wide, its window ${innerWidth}`);
  for (const element of all) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && (box.left < -0.5 || box.right > innerWidth + 0.5)) {
      faults.push(`${name(element)} lies from ${box.left} to ${box.right}`);
    }
  }

  // Lines of text, each with its element.
  const lines = [];
  for (const element of all) {
    for (const node of element.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) {
        if (box.width > 0) lines.push({ element, box });
      }
    }
    for (const input of element.matches('input') ? [element] : []) {
      lines.push({ element: input, box: input.getBoundingClientRect() });
    }
  }
  const overlap = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > SLACK &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > SLACK * 2;
  lines.sort((a, b) => a.box.top - b.box.top);
  lines.forEach((line, i) => {
    for (let j = i + 1; j < lines.length && lines[j].box.top < line.box.bottom; j++) {
      if (lines[j].element !== line.element && overlap(line.box, lines[j].box)) {
        faults.push(`${name(line.element)} and ${name(lines[j].element)} overlap`);
      }
    }
  });

  // Cards do not overlap, and their text stays inside.
  const cards = all.filter(element => element.matches('.card'));
  cards.forEach((card, i) => {
    for (const other of cards.slice(i + 1)) {
      if (overlap(card.getBoundingClientRect(), other.getBoundingClientRect())) {
        faults.push(`${name(card)} and ${name(other)} overlap`);
      }
    }
  });
  for (const { element, box } of lines) {
    const card = element.closest('.card');
    const around = card && card.getBoundingClientRect();
    if (card && (box.left < around.left || box.right > around.right ||
        box.bottom > around.bottom)) {
      faults.push(`${name(element)} leaves its card`);
    }
  }

  // Contrast of text with the nearest background that is not transparent.
  const parts = colour => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(part => part / 255)
      .map(part => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const groundOf = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const checked = new Set();
  for (const { element } of lines) {
    const style = getComputedStyle(element);
    const colour = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [luminance(parts(colour)), luminance(groundOf(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const what = `${colour} on ${groundOf(element)}`;
    if (contrast < CONTRAST_MIN && !checked.has(what)) {
      checked.add(what);
      faults.push(`${name(element)}: ${what} has a contrast of ${contrast.toFixed(2)}`);
    }
  }
  if (lines.length < 40) faults.push(`only ${lines.length} lines of text: is this the page?`);
  return faults;
})()
