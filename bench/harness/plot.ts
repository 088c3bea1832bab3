/** Lines over counts as an SVG: counts by powers of ten, costs from zero. */

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

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 360, 56, 16, 40, 48];
const COLOURS = ["#1b6ca8", "#c0562f", "#3d8b37"];
const MID = "middle";

export function renderSvg({ title, x, y, series }: Plot): string {
  const allPoints = series.flatMap(({ points }) => points);
  const decades = Math.ceil(Math.log10(Math.max(10, ...allPoints.map(([count]) => count))));
  const maxCost = roundUpNicely(Math.max(1, ...allPoints.map(([, cost]) => cost)));
  const atX = (count: number): number => LEFT + (Math.log10(count) / decades) * (WIDTH - LEFT - RIGHT);
  const atY = (cost: number): number => HEIGHT - BOTTOM - (cost / maxCost) * (HEIGHT - TOP - BOTTOM);
  const lines: string[] = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    renderText(WIDTH / 2, 22, title, MID, 15),
    renderText(WIDTH / 2, HEIGHT - 10, x, MID),
    renderText(8, TOP - 8, y, "start"),
  ];
  for (let decade = 0; decade <= decades; decade++) {
    lines.push(renderLine(atX(10 ** decade), TOP, atX(10 ** decade), HEIGHT - BOTTOM));
    lines.push(renderText(atX(10 ** decade), HEIGHT - BOTTOM + 16, (10 ** decade).toLocaleString("en-US"), MID));
  }
  for (let part = 0; part <= 4; part++) {
    const cost = (maxCost * part) / 4;
    lines.push(
      renderLine(LEFT, atY(cost), WIDTH - RIGHT, atY(cost)),
      renderText(LEFT - 6, atY(cost) + 4, String(cost), "end"),
    );
  }
  for (const [index, { name, points }] of series.entries()) {
    const colour = COLOURS[index % COLOURS.length] as string;
    const path = points.map(([count, cost]) => `${round(atX(count))},${round(atY(cost))}`).join(" ");
    lines.push(`<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"/>`);
    for (const [count, cost] of points) {
      lines.push(`<circle cx="${round(atX(count))}" cy="${round(atY(cost))}" r="3" fill="${colour}"/>`);
    }
    lines.push(renderText(WIDTH - RIGHT - 4, HEIGHT - BOTTOM - 12 - 16 * index, name, "end", 12, colour));
  }
  return `${[...lines, "</svg>"].join("\n")}\n`;
}

function renderLine(x1: number, y1: number, x2: number, y2: number): string {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" stroke="#ddd"/>`;
}

function renderText(x: number, y: number, text: string, anchor: string, size = 12, fill = "#222"): string {
  return `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" font-size="${size}" fill="${fill}">${text}</text>`;
}

function round(figure: number): number {
  return Math.round(figure * 10) / 10;
}

/** 1, 2, 4 or 8 times a power of ten: quarters of it are short numbers. */
function roundUpNicely(figure: number): number {
  const power = 10 ** Math.floor(Math.log10(figure));
  return power * ([1, 2, 4, 8, 10].find((factor) => factor * power >= figure) as number);
}
