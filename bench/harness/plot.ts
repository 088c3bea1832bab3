/** Lines over counts as an SVG: counts by powers of ten, costs from zero. */

import { renderLine, renderPicture, renderText, round } from "./svg.ts";

export interface Plot {
  /** Of its file, below docs/results. */
  readonly name: string;
  readonly title: string;
  readonly x: string;
  readonly y: string;
  readonly series: readonly Series[];
}

interface Series {
  readonly name: string;
  readonly points: readonly (readonly [count: number, cost: number])[];
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [760, 360, 56, 48, 60, 52];

export function renderPlot({ title, x, y, series }: Plot): string {
  const allPoints = series.flatMap(({ points }) => points);
  const decades = Math.ceil(Math.log10(Math.max(10, ...allPoints.map(([count]) => count))));
  const maxCost = roundUpNicely(Math.max(1, ...allPoints.map(([, cost]) => cost)));
  const atX = (count: number): number => LEFT + (Math.log10(count) / decades) * (WIDTH - LEFT - RIGHT);
  const atY = (cost: number): number => HEIGHT - BOTTOM - (cost / maxCost) * (HEIGHT - TOP - BOTTOM);
  const content: string[] = [
    renderText(16, 26, title, { size: 15, isBold: true }),
    renderText(16, 46, y, { className: "muted" }),
    renderText(WIDTH / 2, HEIGHT - 12, x, { anchor: "middle", className: "muted" }),
  ];
  for (let decade = 0; decade <= decades; decade++) {
    const count = 10 ** decade;
    content.push(renderLine(atX(count), TOP, atX(count), HEIGHT - BOTTOM, "grid"));
    content.push(renderText(atX(count), HEIGHT - BOTTOM + 18, count.toLocaleString("en-US"), { anchor: "middle" }));
  }
  for (let part = 0; part <= 4; part++) {
    const cost = (maxCost * part) / 4;
    content.push(
      renderLine(LEFT, atY(cost), WIDTH - RIGHT, atY(cost), "grid"),
      renderText(LEFT - 8, atY(cost) + 4, String(cost), { anchor: "end" }),
    );
  }
  for (const [index, { name, points }] of series.entries()) {
    const path = points.map(([count, cost]) => `${round(atX(count))},${round(atY(cost))}`).join(" ");
    content.push(`<polyline class="line${index}" points="${path}" fill="none" stroke-width="2"/>`);
    for (const [count, cost] of points) {
      content.push(`<circle class="fill${index}" cx="${round(atX(count))}" cy="${round(atY(cost))}" r="3.5"/>`);
    }
    const style = { anchor: "end", className: `fill${index}`, isBold: true } as const;
    content.push(renderText(WIDTH - RIGHT - 8, HEIGHT - BOTTOM - 12 - 18 * index, name, style));
  }
  return renderPicture(WIDTH, HEIGHT, title, content);
}

/** 1, 2, 4 or 8 times a power of ten: quarters of it are short numbers. */
function roundUpNicely(figure: number): number {
  const power = 10 ** Math.floor(Math.log10(figure));
  return power * ([1, 2, 4, 8, 10].find((factor) => factor * power >= figure) as number);
}
