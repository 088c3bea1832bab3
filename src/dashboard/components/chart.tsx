/** A chart of values over time, by uPlot. Its colours follow the scheme of the page. */

import { useEffect, useRef } from "preact/hooks";
import type { AlignedData, Options } from "uplot";
import uPlot from "uplot";
import { onColorsChanged } from "../data/theme.ts";

/** One line of a chart. */
interface ChartLine {
  readonly label: string;
  /** The name of a colour of the style sheet, such as "--held". */
  readonly color: string;
  /** Also drawn in dashes, so that it differs not by colour alone. */
  readonly isDashed?: boolean;
  /** null: not known. */
  readonly values: readonly (number | null)[];
}

interface ChartProps {
  readonly title: string;
  /** In seconds since 1970. */
  readonly times: readonly number[];
  readonly lines: readonly ChartLine[];
  readonly format: (value: number) => string;
}

const HEIGHT = 170;
const AXIS_FONT = "11px system-ui, sans-serif";

export function Chart({ title, times, lines, format }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data: AlignedData = [[...times], ...lines.map(({ values }) => [...values])];
  const latest = useRef({ data, lines, format });
  latest.current = { data, lines, format };

  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const draw = (): void => {
      plot.current?.destroy();
      const options = createOptions(element, latest.current.lines, latest.current.format);
      plot.current = new uPlot(options, latest.current.data, element);
    };
    draw();
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    const unsubscribe = onColorsChanged(draw);
    return () => {
      observer.disconnect();
      unsubscribe();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(data));
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        {lines.map(({ label, color, isDashed = false, values }) => (
          <span key={label} class={`legend legend${color.slice(1)}${isDashed ? " legend-dashed" : ""}`}>
            {`${label} ${formatLast(values, format)}`}
          </span>
        ))}
      </figcaption>
      <div ref={host} class="chart-host" role="img" aria-label={describe(title, lines, format)} />
    </figure>
  );
}

function formatLast(values: readonly (number | null)[], format: (value: number) => string): string {
  const last = values.at(-1) ?? null;
  return last === null ? "" : format(last);
}

function describe(title: string, lines: readonly ChartLine[], format: (value: number) => string): string {
  const parts = lines.map(({ label, values }) => `${label} ${formatLast(values, format) || "not known"}`);
  return `${title}, now: ${parts.join(", ")}`;
}

/** Resolves a colour of the style sheet, which may depend on the scheme. */
function readColor(element: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function createOptions(element: HTMLElement, lines: readonly ChartLine[], format: (value: number) => string): Options {
  const ink = readColor(element, "--muted");
  const grid = { stroke: readColor(element, "--line"), width: 1 };
  const axis = { stroke: ink, font: AXIS_FONT, grid, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 20, 0, 0],
    scales: { y: { range: (_plot, _min, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [
      { ...axis, size: 28, values: "{HH}:{mm}:{ss}", space: 80 },
      { ...axis, size: 52, values: (_plot, splits) => splits.map(format) },
    ],
    series: [
      {},
      ...lines.map(({ label, color, isDashed = false }) => ({
        label,
        stroke: readColor(element, color),
        width: 1.75,
        points: { show: false },
        ...(isDashed && { dash: [5, 4] }),
      })),
    ],
  };
}
