/** One key: its holders and its queue, in order, and its last events. */

import { useMemo, useState } from "preact/hooks";
import type { ListedClaim, Overview } from "../../gateway/dashboard/view-types.ts";
import { createHolderTable, createWaiterTable } from "../components/claim-columns.tsx";
import { ClaimsBanners } from "../components/claims-banners.tsx";
import { EmptyState, LoadingRows } from "../components/empty-state.tsx";
import { KeyHead } from "../components/key-head.tsx";
import { KeyHistory } from "../components/key-history.tsx";
import { RevokeDialog } from "../components/revoke-dialog.tsx";
import { RowTable } from "../components/row-table.tsx";
import { useTick } from "../data/clock.ts";
import { openRoute } from "../data/navigation.ts";
import { useShortcuts } from "../data/shortcuts.ts";
import { useClaims } from "../data/use-claims.ts";
import { useEvents } from "../data/use-events.ts";
import { judgeFreshness } from "../model/freshness.ts";
import { findLost, splitQueue } from "../model/key-queue.ts";
import { refusalFor } from "../model/revocation.ts";
import { DEFAULT_QUERY } from "../model/routes.ts";

interface KeyViewProps {
  readonly keyName: string;
  readonly overview: Overview | null;
}

const HOLDER_PX = [44, 150] as const;
const WAITER_PX = [36, 62] as const;

export function KeyView({ keyName, overview }: KeyViewProps) {
  const claims = useClaims({ key: keyName });
  const events = useEvents(keyName);
  const now = useTick();
  const [revoked, setRevoked] = useState<ListedClaim | null>(null);
  const [done, setDone] = useState("");
  const [ownRevocations, setOwnRevocations] = useState<readonly string[]>([]);
  const { reading, readAt, leases, forbidden } = claims;
  const queue = useMemo(() => (reading === null ? null : splitQueue(reading.claims, keyName)), [reading, keyName]);
  const lost = useMemo(
    () => new Set([...findLost(events.ring.events), ...ownRevocations]),
    [events.ring.events, ownRevocations],
  );
  useShortcuts({ Escape: () => openRoute({ view: "keys", query: DEFAULT_QUERY }) });
  const elapsedMs = readAt === null ? 0 : Math.max(0, now - readAt);
  const { state } = judgeFreshness(claims, now);
  const isDimmed = state === "stale" || state === "disconnected";
  const canRevoke = overview?.canRevoke === true;
  const options = { keyName, elapsedMs, leases, lost, canRevoke, onRevoke: setRevoked };
  const tables = { isDimmed, idOf: ({ tag }: ListedClaim) => tag };
  const finish = (isFree: boolean): void => {
    if (revoked !== null) setOwnRevocations((tags) => [...tags, revoked.tag]);
    setDone(
      isFree ? "Revoked, and the key is free." : "Revoked. The holder is told; the key is free when it releases it.",
    );
    claims.refresh();
  };
  return (
    <>
      <KeyHead keyName={keyName} queue={queue} elapsedMs={elapsedMs} />
      <ClaimsBanners claims={claims} overview={overview} />
      <p class="done" role="status">
        {done}
      </p>
      {forbidden !== null ? (
        <EmptyState title="This key may not be seen" tone="refused">
          {forbidden}
        </EmptyState>
      ) : queue === null ? (
        <LoadingRows label="Loading the key" />
      ) : (
        <>
          <section aria-labelledby="holders">
            <h2 id="holders">Holders</h2>
            {queue.holders.length === 0 ? (
              <p class="muted">No claim holds this key.</p>
            ) : (
              <RowTable
                label="Holders"
                name="holding"
                rows={queue.holders}
                columns={createHolderTable(options)}
                rowPx={HOLDER_PX}
                {...tables}
              />
            )}
            <RevokeNote holders={queue.holders} overview={overview} />
          </section>
          <section aria-labelledby="queue">
            <h2 id="queue">Queue</h2>
            {queue.waiters.length === 0 ? (
              <p class="muted">No claim waits for this key.</p>
            ) : (
              <RowTable
                label="Queue"
                name="waiting"
                rows={queue.waiters}
                columns={createWaiterTable(options)}
                rowPx={WAITER_PX}
                isPassive
                {...tables}
              />
            )}
          </section>
          <section aria-labelledby="history">
            <h2 id="history">Last events</h2>
            <KeyHistory
              events={events}
              queue={[...queue.holders, ...queue.waiters]}
              readAt={Date.now() - (performance.now() - (readAt ?? performance.now()))}
            />
          </section>
        </>
      )}
      {revoked?.token != null && (
        <RevokeDialog
          keyName={keyName}
          claim={revoked}
          token={revoked.token}
          next={queue?.waiters[0] ?? null}
          leftMs={revoked.remainingMs === null ? null : currentLeft(revoked, queue?.holders ?? [], elapsedMs)}
          isPresent={queue?.holders.some(({ tag }) => tag === revoked.tag) === true}
          hasFencing={overview?.fencing === true}
          onRevoked={finish}
          onClose={() => setRevoked(null)}
        />
      )}
    </>
  );
}

/** What remains of the lease by the newest list: it may have been renewed since the dialog was opened. */
function currentLeft(claim: ListedClaim, holders: readonly ListedClaim[], elapsedMs: number): number {
  const newest = holders.find(({ tag }) => tag === claim.tag) ?? claim;
  return Math.max(0, (newest.remainingMs ?? 0) - elapsedMs);
}

interface RevokeNoteProps {
  readonly holders: readonly ListedClaim[];
  readonly overview: Overview | null;
}

/** Why there is no button to revoke. */
function RevokeNote({ holders, overview }: RevokeNoteProps) {
  if (overview === null || holders.length === 0) return null;
  const refusal = overview.canRevoke ? null : (overview.revokeRefusal ?? "Nothing can be revoked from here.");
  const reasons = new Set(holders.flatMap((claim) => refusalFor(claim, refusal) ?? []));
  if (reasons.size === 0) return null;
  return <p class="caption">{[...reasons].join(" ")}</p>;
}
