/** The rows of a long table that are near the window: only these have elements. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows above and below the window that have elements. */
const MARGIN_ROWS = 6;
/** The range changes in steps, so that most scroll events draw nothing. */
const STEP_ROWS = 4;
const MAX_ROWS = 60;

/** Which rows have elements: from `start` up to `end`. */
interface RowRange {
  readonly start: number;
  readonly end: number;
}

export interface VirtualRows<E extends HTMLElement> extends RowRange {
  /** For the element that contains all rows. */
  readonly ref: RefObject<E | null>;
  /** Scrolls until the row can be seen. */
  readonly reveal: (index: number) => void;
}

/** @param topPx what covers the top of the window */
export function useVirtualRows<E extends HTMLElement>(count: number, rowPx: number, topPx: number): VirtualRows<E> {
  const ref = useRef<E>(null);
  const [range, setRange] = useState<RowRange>(() => findRange(0, innerHeight, count, rowPx));
  useLayoutEffect(() => {
    const measure = (): void => {
      const element = ref.current;
      if (element === null) return;
      const next = findRange(element.getBoundingClientRect().top, innerHeight, count, rowPx);
      setRange((before) => (before.start === next.start && before.end === next.end ? before : next));
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [count, rowPx]);
  const reveal = (index: number): void => {
    const element = ref.current;
    if (element === null) return;
    const top = element.getBoundingClientRect().top + index * rowPx;
    if (top < topPx) scrollBy(0, top - topPx);
    else if (top + rowPx > innerHeight) scrollBy(0, top + rowPx - innerHeight + rowPx / 2);
  };
  return { ref, reveal, start: Math.min(range.start, count), end: Math.min(range.end, count) };
}

/** @param topPx where the first row is, in the window */
function findRange(topPx: number, windowPx: number, count: number, rowPx: number): RowRange {
  const first = Math.floor(Math.max(0, -topPx) / rowPx) - MARGIN_ROWS;
  const start = Math.max(0, Math.floor(first / STEP_ROWS) * STEP_ROWS);
  const fitting = Math.ceil(windowPx / rowPx) + 2 * MARGIN_ROWS + STEP_ROWS;
  return { start, end: Math.min(count, start + Math.min(fitting, MAX_ROWS)) };
}
