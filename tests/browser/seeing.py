"""What of a page somebody can't read, reach or keep still: asked of the page as a real Chromium shows it."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from tests.browser.driving import until

WIDE, PHONE = (1440, 900), (390, 844)

STEADY = """
(() => {
  window.shifted = [];
  const named = (node) => node instanceof Element ? node.tagName.toLowerCase() + (node.id && '#' + node.id)
    + [...node.classList].map((each) => '.' + each).join('') : `${node?.nodeName}`;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      window.shifted.push([entry.value, ...entry.sources.map(({node, previousRect: from, currentRect: to}) =>
        `${named(node)} by ${Math.round(to.x - from.x)}, ${Math.round(to.y - from.y)}`)]);
    }
  }).observe({type: 'layout-shift', buffered: true});
})();
"""
"""For a page's start: from then on what moves without anybody having asked for it is kept."""

DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

SHAPE = """() => {
  const problems = [];
  const seen = new Set();
  for (const {id} of document.querySelectorAll('[id]')) {
    if (seen.has(id)) problems.push(`the id ${id} twice`);
    seen.add(id);
  }
  if (!document.documentElement.lang) problems.push('no language');
  if (!document.title.replace('· GRPO control plane', '').trim()) problems.push('no title');
  let before = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    if (!heading.checkVisibility({visibilityProperty: true})) continue;
    const level = Number(heading.tagName[1]);
    const words = heading.textContent.trim();
    if (!words) problems.push(`an empty h${level}`);
    if (level === 1 ? before !== 0 : level > before + 1) problems.push(`h${level} after h${before}: ${words}`);
    before = level;
  }
  if (!before) problems.push('no heading');
  return problems;
}"""

MOVES = """() => {
  const found = [];
  const long = (times) => times.split(',').some((time) => parseFloat(time) * (time.endsWith('ms') ? 1 : 1000) > 10);
  for (const element of document.querySelectorAll('*')) {
    for (const part of ['', '::before', '::after']) {
      const style = getComputedStyle(element, part || null);
      const animated = style.animationName !== 'none' && long(style.animationDuration);
      if (animated || long(style.transitionDuration) || style.scrollBehavior === 'smooth') {
        found.push(`${element.tagName.toLowerCase()}.${element.className}${part}`);
      }
    }
  }
  return [...new Set(found)];
}"""

UNFOLD = """() => {
  for (const part of document.querySelectorAll('details, dialog')) part.setAttribute('open', '');
}"""

WIDER = """() => {
  const width = document.documentElement.scrollWidth;
  return width > innerWidth ? [`${width} pixels wide in a window of ${innerWidth}`] : [];
}"""

FAINT = """() => {
  const canvas = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  const known = new Map();
  const parsed = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = (below, [r, g, b, a]) => [r, g, b].map((part, i) => part * a + below[i] * (1 - a));
  const lightness = (colour) => {
    const linear = (share) => share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = colour.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const layers = new Map();
  const layer = (element) => {
    if (!layers.has(element)) {
      const style = getComputedStyle(element);
      layers.set(element, {background: parsed(style.backgroundColor), opacity: Number(style.opacity), style});
    }
    return layers.get(element);
  };
  // An element's opacity is that of all that it holds, over what lies behind it.
  const shown = (way, behind, ink) => {
    if (!way.length) return ink ? over(behind, ink) : behind;
    const {background, opacity} = layer(way[0]);
    const inner = shown(way.slice(1), over(behind, background), ink);
    return inner.map((part, i) => part * opacity + behind[i] * (1 - opacity));
  };
  const wayTo = (element) => {
    const way = [];
    for (let at = element; at; at = at.parentElement) way.unshift(at);
    return way;
  };
  const canvasColour = over([255, 255, 255], parsed(getComputedStyle(document.documentElement).backgroundColor));
  const faint = new Map();
  const look = (element, words, colour) => {
    const {style} = layer(element);
    const way = wayTo(element);
    const [text, ground] = [shown(way, canvasColour, parsed(colour)), shown(way, canvasColour, null)].map(lightness);
    if (parsed(colour)[3] === 0) return; // not for the eye, such as what a skeleton stands for
    const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const key = `${element.tagName.toLowerCase()}.${element.getAttribute('class') ?? ''}`;
    if (ratio < (large ? 3 : 4.5)) faint.set(key, `${ratio.toFixed(2)} ${key}: ${words.trim().slice(0, 40)}`);
  };
  const OFF = ':disabled, [aria-disabled="true"], [aria-hidden="true"], option';
  const visible = (element) => element.checkVisibility({visibilityProperty: true, opacityProperty: true})
    && !element.closest(OFF) && !element.closest('label:has(:disabled), fieldset:disabled');
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.matches('textarea, script, style, template') || !visible(element)) continue;
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    // Charts that are not on the screen are drawn when they come there.
    const away = box.bottom < 0 || box.top > innerHeight;
    const drawn = element instanceof SVGElement;
    if (drawn && away) continue;
    look(element, node.data, drawn ? layer(element).style.fill : layer(element).style.color);
  }
  for (const control of document.querySelectorAll('input, select, textarea')) {
    if (!visible(control) || ['checkbox', 'radio', 'range', 'file'].includes(control.type)) continue;
    const ask = control.placeholder && !control.value;
    const {color} = ask ? getComputedStyle(control, '::placeholder') : layer(control).style;
    look(control, ask ? control.placeholder : String(control.value), color);
  }
  return [...faint.values()];
}"""

QUIET = """() => document.readyState === 'complete'
  && !document.querySelector('.htmx-request, .panel:not([hidden]) .panel-skeleton, html[data-live=opening]')"""

NAMELESS = """() => {
  const CONTROLS = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex], [role=button]';
  const words = (node) => {
    if (!(node instanceof Element)) return node.data ?? '';
    if (node.matches('[aria-hidden=true]') || getComputedStyle(node).display === 'none') return '';
    const own = node.getAttribute('aria-label') ?? (node.matches('img') ? node.alt : null);
    return own ?? [...node.childNodes].map(words).join(' ');
  };
  const named = (ids) => ids.split(/ +/).map((id) => document.getElementById(id)?.textContent ?? '').join(' ');
  const nameless = [...document.querySelectorAll(CONTROLS)].filter((control) => {
    const told = [
      control.getAttribute('aria-label'),
      named(control.getAttribute('aria-labelledby') ?? ''),
      ...[...(control.labels ?? [])].map((label) => label.textContent),
      control.matches('input, select, textarea') ? control.getAttribute('placeholder')
        : [...control.childNodes].map(words).join(' '), // its own style hides it at this width alone, perhaps
      control.title,
    ];
    return !control.closest('[hidden], [aria-hidden=true]') && !told.join('').trim();
  });
  return [...new Set(nameless.map((control) => control.outerHTML.slice(0, 200)))];
}"""
"""Each control, folded away ones too, that a screen reader would call by nothing."""


BARRIERS = """async () => {
  const {violations} = await axe.run(document, {resultTypes: ['violations']});
  return violations.filter(({impact}) => ['serious', 'critical'].includes(impact))
    .flatMap(({id, nodes}) => nodes.map(({target, failureSummary}) => `${id} at ${target}: ${failureSummary}`));
}"""


def barriers(page: Page) -> list[str]:
    """What axe calls serious or critical on the page as it is drawn now."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    return settled(page, BARRIERS, tries=3)


def visit(page: Page, address: str) -> None:
    """Answers once nothing of the page is still to come."""
    page.goto(address)
    until(page, lambda: page.evaluate(QUIET))


def resize(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})


def settled(page: Page, script: str, tries: int = 20) -> list[str]:
    """What the script finds wrong, when what is drawn anew after a change of theme or width has had its time."""
    for _ in range(tries):
        found: list[str] = page.evaluate(script)
        if not found:
            break
        page.wait_for_timeout(100)
    return found


def too_wide(page: Page, *addresses: str) -> list[str]:
    """Which pages are wider than their window, on a desk or on a phone; each is visited once."""
    found = []
    for address in addresses:
        visit(page, address)
        for size in (WIDE, PHONE):
            resize(page, size)
            found += [f"{address}: {wide}" for wide in settled(page, WIDER)]
    return found


def shifted(page: Page) -> float:
    """How much of the page has moved by how much up to now, as Chromium's layout shift score counts it."""
    page.evaluate(DRAWN)
    return float(sum(entry[0] for entry in page.evaluate("window.shifted")))
