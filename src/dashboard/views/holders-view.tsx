/** What each label holds and waits for. */

import { useMemo } from "preact/hooks";
import type { Overview, Reading } from "../../gateway/dashboard/view-types.ts";
import { ClaimsBanners } from "../components/claims-banners.tsx";
import { EmptyState, LoadingRows } from "../components/empty-state.tsx";
import { createHolderColumns } from "../components/holder-columns.tsx";
import { RowTable } from "../components/row-table.tsx";
import { FullText } from "../components/safe-text.tsx";
import { SearchField } from "../components/search-field.tsx";
import { useTick } from "../data/clock.ts";
import { replaceRoute } from "../data/navigation.ts";
import { useClaims } from "../data/use-claims.ts";
import { judgeFreshness } from "../model/freshness.ts";
import { filterGroups, groupByLabel, listLines } from "../model/holder-groups.ts";
import { formatAmount, formatCount } from "../model/time-format.ts";

interface HoldersViewProps {
  readonly search: string;
  readonly overview: Overview | null;
}

const ROW_PX = [36, 52] as const;

export function HoldersView({ search, overview }: HoldersViewProps) {
  const claims = useClaims({ prefix: "" });
  const now = useTick();
  const { reading, readAt, leases, forbidden } = claims;
  const groups = useMemo(() => (reading === null ? null : groupByLabel(reading.claims)), [reading]);
  const shown = useMemo(() => (groups === null ? [] : filterGroups(groups, search)), [groups, search]);
  const lines = useMemo(() => listLines(shown), [shown]);
  const change = (text: string): void => replaceRoute({ view: "holders", search: text });
  const elapsedMs = readAt === null ? 0 : Math.max(0, now - readAt);
  const { state } = judgeFreshness(claims, now);
  return (
    <>
      <h1 class="visually-hidden">Holders</h1>
      <search class="toolbar">
        <SearchField
          label="Search labels and keys"
          placeholder="Search labels and keys"
          value={search}
          hasShortcut
          onChange={change}
        />
      </search>
      <ClaimsBanners claims={claims} overview={overview} />
      {forbidden !== null ? (
        <EmptyState title="The holders cannot be shown" tone="refused">
          {forbidden}
        </EmptyState>
      ) : reading === null || groups === null ? (
        <LoadingRows label="Loading the holders" />
      ) : (
        <>
          <HoldersFigures search={search} shownCount={shown.length} groupCount={groups.length} reading={reading} />
          {lines.length === 0 ? (
            <NoHolders search={search} hasGroups={groups.length > 0} onClear={() => change("")} />
          ) : (
            <RowTable
              label="Holders"
              name="holders"
              rows={lines}
              idOf={({ id }) => id}
              columns={createHolderColumns(leases, elapsedMs)}
              rowPx={ROW_PX}
              classOf={({ kind }) => `line-${kind}`}
              isDimmed={state === "stale" || state === "disconnected"}
            />
          )}
        </>
      )}
    </>
  );
}

interface HoldersFiguresProps {
  readonly search: string;
  readonly shownCount: number;
  readonly groupCount: number;
  readonly reading: Reading;
}

function HoldersFigures({ search, shownCount, groupCount, reading }: HoldersFiguresProps) {
  return (
    <p class="figures">
      <span>
        {search === "" ? "" : `${formatCount(shownCount)} of `}
        {formatAmount(groupCount, "label")}
      </span>
      <span>Claims with the same label are shown together.</span>
      {!reading.isComplete && (
        <strong class="limit">
          {`Of the first ${formatCount(reading.claims.length)} claims; the store has more.`}
        </strong>
      )}
    </p>
  );
}

interface NoHoldersProps {
  readonly search: string;
  readonly hasGroups: boolean;
  readonly onClear: () => void;
}

function NoHolders({ search, hasGroups, onClear }: NoHoldersProps) {
  if (!hasGroups) return <EmptyState title="No holders">No claim holds a key or waits for one.</EmptyState>;
  return (
    <EmptyState title="No label and no key contains this text">
      <FullText text={search} isCode />
      <button type="button" class="button" onClick={onClear}>
        Clear the search
      </button>
    </EmptyState>
  );
}
