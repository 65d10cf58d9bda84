// Points on a canvas that is moved, zoomed, and on which areas are drawn around points.

import { thumbnail } from "./api.js";

const SIDE = 1000; // of the map
const FEW = 160; // points in sight that are shown as pictures
const CELL = 68; // pixels between pictures at least
const SMALL = 19; // half the side of a picture of a group, above its middle
const NEAR = 14; // pixels between a click and its point at most

export class Plane {
  constructor(canvas, { onArea, onOpen }) {
    Object.assign(this, { canvas, onArea, onOpen, moving: false, points: null, faint: null, area: [], pictures: new Map() });
    this.at = { x: SIDE / 2, y: SIDE / 2, zoom: 1 };
    this.fingers = new Map();
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#up(event));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // points are {ids, x, y, colours, middle}, the last those that show a picture; `chosen` says which of them stand out, null for all
  show(points, chosen, area) {
    Object.assign(this, { points, chosen, area });
    this.draw();
  }

  zoom(by, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const [x, y] = this.#place(px, py);
    this.at.zoom = Math.min(60, Math.max(0.8, this.at.zoom * by));
    const [nx, ny] = this.#place(px, py);
    this.at.x += x - nx;
    this.at.y += y - ny;
    this.draw();
  }

  reset() {
    this.at = { x: SIDE / 2, y: SIDE / 2, zoom: 1 };
    this.draw();
  }

  draw() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.#draw();
    });
  }

  #scale() {
    return (Math.min(this.canvas.clientWidth, this.canvas.clientHeight) / (SIDE * 1.08)) * this.at.zoom;
  }

  #place(px, py) {
    const scale = this.#scale();
    return [(px - this.canvas.clientWidth / 2) / scale + this.at.x, (py - this.canvas.clientHeight / 2) / scale + this.at.y];
  }

  #pixel(x, y) {
    const scale = this.#scale();
    return [(x - this.at.x) * scale + this.canvas.clientWidth / 2, (y - this.at.y) * scale + this.canvas.clientHeight / 2];
  }

  #draw() {
    const { canvas, points, chosen } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !points) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const visible = [];
    const size = Math.max(2.5, Math.min(9, 2.6 * Math.sqrt(this.at.zoom) * (points.ids.length < 3000 ? 1.5 : 1)));
    for (let i = 0; i < points.ids.length; i += 1) {
      const [px, py] = this.#pixel(points.x[i], points.y[i]);
      if (px < -40 || py < -40 || px > width + 40 || py > height + 40) continue;
      visible.push([i, px, py]);
      pen.globalAlpha = chosen && !chosen.has(points.ids[i]) ? 0.15 : 0.9;
      pen.fillStyle = points.colours[i];
      pen.beginPath();
      pen.arc(px, py, size / 2 + 0.6, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
    const middle = new Set(points.middle); // each group shows one picture, until there is room for all
    if (visible.length <= FEW) this.#drawPictures(pen, visible, CELL / 2 - 4);
    else this.#drawPictures(pen, visible.filter(([i]) => middle.has(i)).map(([i, px, py]) => [i, px, py - SMALL - 14]), SMALL);
    this.visible = visible.length;
    this.#drawArea(pen);
  }

  #drawPictures(pen, visible, half) {
    const taken = [];
    for (const [i, px, py] of visible) {
      if (taken.some(([tx, ty]) => Math.abs(tx - px) < 2 * half + 8 && Math.abs(ty - py) < 2 * half + 8)) continue;
      taken.push([px, py]);
      const id = this.points.ids[i];
      let image = this.pictures.get(id);
      if (!image) {
        image = new Image();
        image.onload = () => this.draw();
        image.src = thumbnail(id);
        this.pictures.set(id, image);
        if (this.pictures.size > 600) this.pictures.delete(this.pictures.keys().next().value);
      }
      if (!image.complete || !image.naturalWidth) continue;
      pen.globalAlpha = this.chosen && !this.chosen.has(id) ? 0.3 : 1;
      const part = Math.min(image.naturalWidth, image.naturalHeight);
      const [sx, sy] = [(image.naturalWidth - part) / 2, (image.naturalHeight - part) / 2];
      pen.fillStyle = this.points.colours[i];
      pen.fillRect(px - half - 2, py - half - 2, 2 * half + 4, 2 * half + 4);
      pen.drawImage(image, sx, sy, part, part, px - half, py - half, 2 * half, 2 * half);
    }
    pen.globalAlpha = 1;
  }

  #drawArea(pen) {
    if (this.area.length < 2) return;
    const [first, ...rest] = this.area.map(([x, y]) => this.#pixel(x, y));
    pen.beginPath();
    pen.moveTo(...first);
    for (const pixel of rest) pen.lineTo(...pixel);
    pen.closePath();
    pen.fillStyle = "rgb(0 114 178 / .12)";
    pen.strokeStyle = "#3d9bd6";
    pen.lineWidth = 2;
    pen.fill();
    pen.stroke();
  }

  #down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.began = [event.offsetX, event.offsetY];
    this.dragged = false;
    this.panning = this.moving || event.button === 1 || event.shiftKey || this.fingers.size > 1;
    this.drawn = this.panning ? null : [this.#place(event.offsetX, event.offsetY)];
  }

  #move(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    const now = [event.offsetX, event.offsetY];
    if (Math.hypot(now[0] - this.began[0], now[1] - this.began[1]) > 5) this.dragged = true;
    if (this.fingers.size === 2) this.#pinch(event.pointerId, before, now);
    else if (this.panning) {
      this.at.x -= (now[0] - before[0]) / this.#scale();
      this.at.y -= (now[1] - before[1]) / this.#scale();
    } else if (this.dragged) {
      this.drawn.push(this.#place(...now));
      this.area = this.drawn;
    }
    this.fingers.set(event.pointerId, now);
    this.draw();
  }

  #pinch(id, before, now) {
    const [, other] = [...this.fingers].find(([key]) => key !== id);
    const apart = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]);
    this.zoom(apart(now) / Math.max(1, apart(before)), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    this.drawn = null;
  }

  #up(event) {
    const known = this.fingers.delete(event.pointerId);
    if (!known || event.type === "pointercancel") return;
    if (!this.dragged) this.#click(event.offsetX, event.offsetY);
    else if (this.drawn?.length > 2) this.onArea(this.drawn);
    this.drawn = null;
  }

  #click(px, py) {
    let best = NEAR;
    let found = null;
    for (let i = 0; i < this.points.ids.length; i += 1) {
      const [x, y] = this.#pixel(this.points.x[i], this.points.y[i]);
      const away = Math.hypot(x - px, y - py) / (this.visible <= FEW ? 2.2 : 1); // pictures are larger than points
      if (away < best) [best, found] = [away, this.points.ids[i]];
    }
    if (found !== null) this.onOpen(found);
  }

  #key(event) {
    const step = 60 / this.#scale();
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (moves[event.key]) {
      this.at.x += moves[event.key][0];
      this.at.y += moves[event.key][1];
    } else if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "0") this.reset();
    else return;
    event.preventDefault();
    this.draw();
  }
}
