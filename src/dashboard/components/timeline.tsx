/** Spans on a time axis, a row for each. It knows nothing but its props: reports use it, too. */

import { formatClock } from "../model/time-format.ts";
import { makeVisible } from "../model/visible-text.ts";

/** A time in which something was in one state. Points in time are in milliseconds since 1970. */
export interface TimelineSpan {
  readonly label: string;
  readonly from: number;
  readonly to: number;
  readonly kind: "waiting" | "held" | "lost";
}

interface TimelineProps {
  /** Spans with the same label that follow each other share a row. */
  readonly spans: readonly TimelineSpan[];
  readonly from: number;
  readonly to: number;
  readonly title: string;
}

const WIDTH = 1_000;
const ROW_PX = 22;
const BAR_PX = 12;
const AXIS_PX = 22;
const TICK_COUNT = 4;
const MIN_BAR = 3;

export function Timeline({ spans, from, to, title }: TimelineProps) {
  const rows = assignRows(spans);
  const height = rows.length * ROW_PX + AXIS_PX;
  const scale = (at: number): number => (to <= from ? 0 : ((at - from) / (to - from)) * WIDTH);
  const ticks = Array.from({ length: TICK_COUNT + 1 }, (_, index) => from + ((to - from) * index) / TICK_COUNT);
  return (
    <figure class="timeline">
      <svg viewBox={`0 0 ${WIDTH} ${height}`} height={height} preserveAspectRatio="none" role="img" aria-label={title}>
        {ticks.map((at) => (
          <line key={at} class="timeline-grid" x1={scale(at)} x2={scale(at)} y1={0} y2={height - AXIS_PX} />
        ))}
        {rows.flatMap((row, index) =>
          row.map((span) => {
            const start = Math.max(0, scale(span.from));
            const width = Math.max(MIN_BAR, Math.min(WIDTH, scale(span.to)) - start);
            const y = index * ROW_PX + (ROW_PX - BAR_PX) / 2;
            return (
              <rect
                key={`${span.kind} ${span.from}`}
                class={`timeline-${span.kind}`}
                x={Math.min(start, WIDTH - width)}
                y={span.kind === "waiting" ? y + BAR_PX / 3 : y}
                width={width}
                height={span.kind === "waiting" ? BAR_PX / 3 : BAR_PX}
              >
                <title>{describeSpan(span)}</title>
              </rect>
            );
          }),
        )}
      </svg>
      <ol class="timeline-labels" aria-hidden="true">
        {rows.map((row, index) => (
          <li key={`${index} ${row[0]?.label}`}>
            <bdi dir="auto">{makeVisible(row[0]?.label ?? "") || "without a label"}</bdi>
          </li>
        ))}
      </ol>
      <div class="timeline-axis" aria-hidden="true">
        {ticks.map((at, index) => (
          <span key={at} class={index % 2 === 1 ? "timeline-minor" : undefined}>
            {formatClock(at)}
          </span>
        ))}
      </div>
      <figcaption>
        <span class="legend legend-waiting">waits (thin)</span>
        <span class="legend legend-held">holds</span>
        <span class="legend legend-lost">lost, not released yet (outlined)</span>
      </figcaption>
    </figure>
  );
}

/** A span that begins where the last one of a row with the same label ends goes into that row. */
function assignRows(spans: readonly TimelineSpan[]): readonly (readonly TimelineSpan[])[] {
  const rows: TimelineSpan[][] = [];
  for (const span of spans) {
    const row = rows.find((candidate) => {
      const last = candidate.at(-1);
      return last?.label === span.label && last.to === span.from;
    });
    if (row === undefined) rows.push([span]);
    else row.push(span);
  }
  return rows;
}

const WORDS: Readonly<Record<TimelineSpan["kind"], string>> = {
  waiting: "waits",
  held: "holds",
  lost: "has lost the lock",
};

function describeSpan({ label, kind, from, to }: TimelineSpan): string {
  return `${makeVisible(label) || "without a label"} ${WORDS[kind]}, ${formatClock(from)} to ${formatClock(to)}`;
}
