/** All keys of the store that are held or waited for. */

import { useMemo } from "preact/hooks";
import type { Overview } from "../../gateway/dashboard/view-types.ts";
import type { Snapshot } from "../../listing/key-rows.ts";
import { createSnapshot, filterRows, sortRows } from "../../listing/key-rows.ts";
import { ClaimsBanners } from "../components/claims-banners.tsx";
import { EmptyState, LoadingRows } from "../components/empty-state.tsx";
import { createKeyColumns } from "../components/key-columns.tsx";
import { KeysToolbar } from "../components/keys-toolbar.tsx";
import { RowTable } from "../components/row-table.tsx";
import { FullText } from "../components/safe-text.tsx";
import { useTick } from "../data/clock.ts";
import { replaceRoute } from "../data/navigation.ts";
import { useClaims } from "../data/use-claims.ts";
import { judgeFreshness } from "../model/freshness.ts";
import type { KeysQuery } from "../model/routes.ts";
import { formatAge, formatAmount, formatCount } from "../model/time-format.ts";
import { makeVisible } from "../model/visible-text.ts";

interface KeysViewProps {
  readonly query: KeysQuery;
  readonly overview: Overview | null;
}

const ROW_PX = [36, 62] as const;

export function KeysView({ query, overview }: KeysViewProps) {
  const claims = useClaims({ prefix: query.prefix });
  const now = useTick();
  const { reading, readAt, leases, forbidden, invalid } = claims;
  const snapshot = useMemo(
    () => (reading === null ? null : createSnapshot(reading.claims, query.prefix, reading.isComplete)),
    [reading, query.prefix],
  );
  const rows = useMemo(
    () => (snapshot === null ? [] : sortRows(filterRows(snapshot.rows, query.search), query.sort, query.isReversed)),
    [snapshot, query.search, query.sort, query.isReversed],
  );
  const change = (next: KeysQuery): void => replaceRoute({ view: "keys", query: next });
  const elapsedMs = readAt === null ? 0 : Math.max(0, now - readAt);
  const { state } = judgeFreshness(claims, now);
  return (
    <>
      <h1 class="visually-hidden">Keys</h1>
      <KeysToolbar query={query} prefixProblem={invalid} onChange={change} />
      <ClaimsBanners claims={claims} overview={overview} />
      {forbidden !== null ? (
        <EmptyState title="These keys cannot be shown" tone="refused">
          {forbidden}
        </EmptyState>
      ) : invalid !== null ? (
        <EmptyState title="No key can begin with this prefix" tone="refused">
          {makeVisible(invalid)}
          <button type="button" class="button" onClick={() => change({ ...query, prefix: "" })}>
            Clear the prefix
          </button>
        </EmptyState>
      ) : snapshot === null ? (
        <LoadingRows label="Loading the keys" />
      ) : (
        <>
          <KeysFigures
            snapshot={snapshot}
            shownCount={rows.length}
            elapsedMs={elapsedMs}
            isSearch={query.search !== ""}
          />
          {rows.length === 0 ? (
            <NoKeys query={query} hasRows={snapshot.rows.length > 0} onChange={change} />
          ) : (
            <RowTable
              label="Keys"
              name="keys"
              rows={rows}
              idOf={({ key }) => key}
              columns={createKeyColumns({ query, onChange: change, elapsedMs, leases })}
              rowPx={ROW_PX}
              isDimmed={state === "stale" || state === "disconnected"}
            />
          )}
        </>
      )}
    </>
  );
}

interface KeysFiguresProps {
  readonly snapshot: Snapshot;
  readonly shownCount: number;
  readonly elapsedMs: number;
  readonly isSearch: boolean;
}

function KeysFigures({ snapshot: { figures, rows, isComplete }, shownCount, elapsedMs, isSearch }: KeysFiguresProps) {
  const { held, waiting, longestWaitMs } = figures;
  const keys = isSearch
    ? `${formatCount(shownCount)} of ${formatAmount(rows.length, "key")}`
    : formatAmount(rows.length, "key");
  const longest = longestWaitMs === null ? "" : `, longest wait ${formatAge(longestWaitMs + elapsedMs)}`;
  return (
    <p class="figures">
      <span>{keys}</span>
      <span>{`${formatCount(held)} held, ${formatCount(waiting)} waiting${longest}`}</span>
      {!isComplete && (
        <strong class="limit">
          {`The first ${formatCount(held + waiting)} claims are loaded; the store has more. A prefix loads others.`}
        </strong>
      )}
    </p>
  );
}

interface NoKeysProps {
  readonly query: KeysQuery;
  readonly hasRows: boolean;
  readonly onChange: (query: KeysQuery) => void;
}

function NoKeys({ query, hasRows, onChange }: NoKeysProps) {
  if (hasRows) {
    return (
      <EmptyState title="No loaded row contains this text">
        <FullText text={query.search} isCode />
        <button type="button" class="button" onClick={() => onChange({ ...query, search: "" })}>
          Clear the search
        </button>
      </EmptyState>
    );
  }
  if (query.prefix === "") {
    return (
      <EmptyState title="No locks">No claim holds a key or waits for one. This page shows the next one.</EmptyState>
    );
  }
  return (
    <EmptyState title="No locks on keys that begin with this prefix">
      <FullText text={query.prefix} isCode />
      <button type="button" class="button" onClick={() => onChange({ ...query, prefix: "" })}>
        Clear the prefix
      </button>
    </EmptyState>
  );
}
