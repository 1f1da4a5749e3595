// Elements, made without a line of HTML: whatever a job carries gets in as text.

/**
 * Make an element.
 *
 * @param {string} tag
 * @param {object} attributes functions are listeners (onclick), true and false
 *   attributes without a value
 * @param {...(Node|string|null|false)} children
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Set an element's text, if it is another. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute, if it is another. */
export function setAttribute(element, name, value) {
  if (value == null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** The one child of an element, made when it has none of that tag yet. */
export function child(parent, tag, attributes) {
  if (parent.firstElementChild?.localName !== tag) {
    parent.replaceChildren(h(tag, attributes));
  }
  return parent.firstElementChild;
}

/** Show a link in an element. */
export function showLink(parent, href, label, title) {
  const anchor = child(parent, 'a');
  setAttribute(anchor, 'href', href);
  setAttribute(anchor, 'title', title);
  setText(anchor, label);
}

/** Put an element to its place among its siblings; keeps the focus where it can. */
function place(parent, element, next) {
  if (element.isConnected && parent.moveBefore) parent.moveBefore(element, next);
  else parent.insertBefore(element, next);
}

/**
 * Keep an element's children in step with a list; what stays keeps its element, and with
 * it the focus. The focus of what goes is the page's heading's.
 *
 * @param {Element} parent
 * @param {function} keyOf of an item: its identity
 * @param {function} make of an item: {element, update(item)}
 * @returns {function} of a list: shows it
 */
export function keyed(parent, keyOf, make) {
  let shown = new Map();
  return (items) => {
    const next = new Map();
    for (const item of items) {
      const key = String(keyOf(item));
      next.set(key, shown.get(key) ?? make(item));
      shown.delete(key);
      next.get(key).update(item);
    }
    for (const { element } of shown.values()) {
      const hadFocus = element.contains(document.activeElement);
      element.remove();
      if (hadFocus) document.querySelector('main h1')?.focus();
    }
    shown = next;
    let following = parent.firstElementChild;
    for (const { element } of shown.values()) {
      if (element === following) following = following.nextElementSibling;
      else place(parent, element, following);
    }
  };
}

/** Say what came of an action; errors stay until they are dismissed. */
export function say(text, isError = false) {
  const close = h('button', { type: 'button', class: 'quiet end', 'aria-label': 'Dismiss' }, 'Close');
  const role = isError && 'alert';
  const notice = h('div', { class: 'row notice', role }, h('p', {}, text), close);
  close.addEventListener('click', () => notice.remove());
  const notices = document.getElementById('notices');
  notices.append(notice);
  while (notices.children.length > 4) notices.firstElementChild.remove();
  if (!isError) setTimeout(() => notice.remove(), 10_000);
}
