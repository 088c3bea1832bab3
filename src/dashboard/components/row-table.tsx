/** A table of any length, of which only the rows near the window have elements. `j` and `k` move through its rows. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { restoreScroll } from "../data/navigation.ts";
import { useShortcuts } from "../data/shortcuts.ts";
import { useNarrow } from "../data/use-media.ts";
import { useVirtualRows } from "../data/use-virtual-rows.ts";

export interface Column<T> {
  /** Also the class of its cells. */
  readonly name: string;
  readonly title: ComponentChildren;
  readonly sort?: "ascending" | "descending" | "none" | undefined;
  readonly cell: (row: T, index: number) => ComponentChildren;
}

interface RowTableProps<T> {
  readonly label: string;
  /** The class of the table, for the widths of its columns. */
  readonly name: string;
  readonly rows: readonly T[];
  readonly idOf: (row: T) => string;
  readonly columns: readonly Column<T>[];
  /** The height of a row, and of one in a narrow window. */
  readonly rowPx: readonly [wide: number, narrow: number];
  readonly classOf?: (row: T) => string;
  /** `j` and `k` are for another table. */
  readonly isPassive?: boolean;
  readonly isDimmed?: boolean;
}

/** The row that was selected last, by the name of its table: the viewer may come back to it. */
const lastSelected = new Map<string, string>();

/** What covers the top of the window: the head of the page and that of the table. */
const COVERED_PX = [90, 100] as const;

export function RowTable<T>(props: RowTableProps<T>) {
  const { label, name, rows, idOf, columns, classOf, isPassive = false, isDimmed = false } = props;
  const isNarrow = useNarrow();
  const rowPx = props.rowPx[isNarrow ? 1 : 0];
  const virtual = useVirtualRows<HTMLTableSectionElement>(rows.length, rowPx, COVERED_PX[isNarrow ? 1 : 0]);
  const [selectedId, setSelectedId] = useState<string | null>(lastSelected.get(name) ?? null);
  const isFocusDue = useRef(false);

  const select = (id: string): void => {
    lastSelected.set(name, id);
    setSelectedId(id);
  };
  const move = (step: number): void => {
    const at = rows.findIndex((row) => idOf(row) === selectedId);
    const next = at === -1 ? 0 : Math.min(rows.length - 1, Math.max(0, at + step));
    const row = rows[next];
    if (row === undefined) return;
    select(idOf(row));
    isFocusDue.current = true;
    virtual.reveal(next);
  };
  useShortcuts(isPassive ? {} : { j: () => move(1), k: () => move(-1) });
  useLayoutEffect(restoreScroll, []);
  // a row far away gets its element only after the page has scrolled
  useLayoutEffect(() => {
    if (!isFocusDue.current) return;
    const link = virtual.ref.current?.querySelector<HTMLElement>("tr[data-selected] a, tr[data-selected] button");
    if (link == null) return;
    isFocusDue.current = false;
    link.focus({ preventScroll: true });
  });

  const { start, end } = virtual;
  return (
    <table class={`rows rows-${name}${isDimmed ? " dimmed" : ""}`} aria-label={label} aria-rowcount={rows.length + 1}>
      <thead>
        <tr>
          {columns.map(({ name: column, title, sort }) => (
            <th key={column} scope="col" class={`cell-${column}`} aria-sort={sort}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody ref={virtual.ref}>
        <Spacer px={start * rowPx} />
        {rows.slice(start, end).map((row, offset) => {
          const id = idOf(row);
          return (
            <tr
              key={id}
              class={`row ${classOf?.(row) ?? ""}`}
              style={{ height: `${rowPx}px` }}
              aria-rowindex={start + offset + 2}
              data-selected={id === selectedId ? "" : undefined}
              onFocusIn={() => select(id)}
            >
              {columns.map(({ name: column, cell }) => (
                <td key={column} class={`cell-${column}`}>
                  {cell(row, start + offset)}
                </td>
              ))}
            </tr>
          );
        })}
        <Spacer px={(rows.length - end) * rowPx} />
      </tbody>
    </table>
  );
}

/** In place of rows without elements. */
function Spacer({ px }: { readonly px: number }) {
  return px > 0 ? <tr class="spacer" style={{ height: `${px}px` }} /> : null;
}
