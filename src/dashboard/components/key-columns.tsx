/** The columns of the list of keys. */

import type { KeyRow, SortOrder } from "../../listing/key-rows.ts";
import type { LeaseScale } from "../model/lease-scale.ts";
import type { KeysQuery } from "../model/routes.ts";
import { formatAge, formatAmount, formatCount } from "../model/time-format.ts";
import { LeaseBar } from "./lease-bar.tsx";
import { Link } from "./link.tsx";
import type { Column } from "./row-table.tsx";
import { Label, ShortText } from "./safe-text.tsx";
import { directionOf, SortTitle } from "./sort-title.tsx";
import { StateMark } from "./state-mark.tsx";

interface KeyColumnsOptions {
  readonly query: KeysQuery;
  readonly onChange: (query: KeysQuery) => void;
  /** The time since the list was read. */
  readonly elapsedMs: number;
  readonly leases: LeaseScale;
}

export function createKeyColumns(options: KeyColumnsOptions): readonly Column<KeyRow>[] {
  const { query, onChange, elapsedMs, leases } = options;
  const sorted = (order: SortOrder, title: string): Pick<Column<KeyRow>, "title" | "sort"> => ({
    title: <SortTitle order={order} title={title} query={query} onChange={onChange} />,
    sort: directionOf(order, query),
  });
  return [
    {
      name: "key",
      ...sorted("key", "Key"),
      cell: ({ key }) => (
        <Link to={{ view: "key", key }} class="row-link">
          <ShortText text={key} isCode />
        </Link>
      ),
    },
    { name: "mode", title: "Mode", cell: (row) => <span class="muted">{nameMode(row)}</span> },
    { name: "holder", title: "Holder", cell: (row) => <Holder row={row} /> },
    {
      name: "held",
      ...sorted("held", "Held for"),
      cell: ({ heldMs }) => (heldMs === null ? "" : formatAge(heldMs + elapsedMs)),
    },
    {
      name: "lease",
      title: "Lease left",
      cell: ({ holders, remainingMs }) =>
        holders.length > 0 && (
          <LeaseBar
            remainingMs={remainingMs}
            elapsedMs={elapsedMs}
            lengthMs={leases.lengthOf(
              holders.map(({ tag }) => tag),
              remainingMs ?? 0,
            )}
          />
        ),
    },
    { name: "waiters", ...sorted("waiters", "Waiters"), cell: ({ waiters }) => <Waiters count={waiters} /> },
    {
      name: "longest",
      ...sorted("longestWait", "Longest wait"),
      cell: ({ longestWaitMs }) => (longestWaitMs === null ? "" : formatAge(longestWaitMs + elapsedMs)),
    },
  ];
}

function nameMode({ mode, permits, limit }: KeyRow): string {
  return mode === "semaphore" ? `${permits ?? 0}/${limit ?? "?"}` : mode;
}

function Holder({ row: { holders } }: { readonly row: KeyRow }) {
  const [first] = holders;
  if (first === undefined) return <span class="muted">not held</span>;
  return (
    <span class="holder">
      {holders.length > 1 && <span class="count-badge">{formatAmount(holders.length, "holder")}</span>}
      <Label text={first.label} />
    </span>
  );
}

function Waiters({ count }: { readonly count: number }) {
  if (count === 0) return <span class="muted">0</span>;
  return <StateMark tone="waiting">{formatCount(count)}</StateMark>;
}
