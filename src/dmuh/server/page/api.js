// Requests to the service, and making of elements.

export const at = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export async function ask(path, options = {}) {
  const response = await fetch(path, options).catch(() => {
    throw new Refused(0, "The service does not answer.");
  });
  if (response.ok) return response.status === 204 ? null : response.json();
  const { error } = await response.json().catch(() => ({ error: response.statusText }));
  throw new Refused(response.status, `${error.charAt(0).toUpperCase()}${error.slice(1)}.`);
}

export const send = (path, file) =>
  ask(path, { method: "POST", body: file, headers: { "content-type": file.type || "application/octet-stream" } });

export function query(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== undefined)).toString();
}

export const thumbnail = (id) => `/api/images/${id}/thumbnail`;

// what is served: filled once it is asked for, and after every change
export const about = { images: 0, labels: {}, n_bits: 0, match_known: false, no_uploads: null, no_texts: null, no_captions: null, uncertainty_percentiles: null };

export async function learn() {
  Object.assign(about, await ask("/api/about"));
}

export function say(text, wrong = false) {
  at("status").textContent = text;
  at("status").classList.toggle("wrong", wrong);
}

// shows a picture; small ones by their pixels
export function picture(image, source, alt = "") {
  image.onload = () => image.classList.toggle("small", image.naturalWidth <= 32);
  image.onerror = () => image.parentElement?.classList.add("missing");
  image.parentElement?.classList.remove("missing");
  image.alt = alt;
  image.src = source;
}
