"use strict";
// Shared by the page's scripts. Text from a run reaches the document through textContent only, never as markup.

const byId = (id) => document.getElementById(id);

/** An element with properties and children; strings become text nodes. */
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.includes("-") || key === "role") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

function makeSvg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** Three significant digits with a real minus sign; tiny numbers in powers of ten. */
function short(value) {
  const size = Math.abs(value);
  let text = String(Number(value.toPrecision(3)));
  if (size >= 1e6) text = Number((value / 1e6).toPrecision(3)) + "M";
  else if (size >= 1e4) text = Number((value / 1e3).toPrecision(3)) + "k";
  else if (size >= 1000) text = Math.round(value).toLocaleString("en");
  else if (size > 0 && size < 1e-3) text = value.toExponential(1);
  return text.replace(/-/g, "\u2212");
}

function signed(value) {
  const size = Math.abs(value).toFixed(2);
  return (size === "0.00" ? "" : value < 0 ? "\u2212" : "+") + size;
}
