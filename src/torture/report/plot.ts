/** A picture with a column of labels, an axis, and a legend: HTML around an SVG whose width is that of the page. */

import { escapeMarkup } from "./markup.ts";
import type { Span } from "./spans.ts";

export interface Figure {
  readonly title: string;
  readonly labels: readonly { readonly text: string; readonly px: number; readonly isHead?: boolean }[];
  readonly height: number;
  readonly plot: string;
  readonly axis: string;
  /** On a narrow screen it keeps a width at which its bars can be told apart, and is scrolled. */
  readonly isWide: boolean;
}

const TICKS = 4;

export function drawFigure({ title, labels, height, plot, axis, isWide }: Figure): string {
  const items = labels.map(({ text, px, isHead }) => {
    const name = isHead === true ? ' class="head"' : "";
    return `<li${name} style="height:${px}px"><bdi>${escapeMarkup(text)}</bdi></li>`;
  });
  return `<figure><div class="scroll" tabindex="0" role="region" aria-label="${escapeMarkup(title)}">
<div class="plot${isWide ? " wide" : ""}"><ul class="lanes" aria-hidden="true">${items.join("")}</ul>
<div style="height:${height}px" role="img" aria-label="${escapeMarkup(title)}">${plot}</div>
<div class="axis" aria-hidden="true">${axis}</div></div></div>
<figcaption>${LEGEND}</figcaption></figure>
`;
}

const LEGEND = [
  ["wait", "waits"],
  ["held", "holds"],
  ["shared", "holds, beside others"],
  ["after", "no longer believed: releasing, lost, or its process is dead"],
  ["fault", "fault"],
  ["violation", "violation"],
]
  .map(([name, text]) => `<span><i class="key-${name}"></i>${text}</span>`)
  .join("");

/** @param format of a point in time */
export function drawAxis({ from, to }: Span, format: (at: number) => string): string {
  return Array.from({ length: TICKS + 1 }, (_, index) => {
    const text = format(from + ((to - from) * index) / TICKS);
    return `<span>${escapeMarkup(text)}</span>`;
  }).join("");
}
