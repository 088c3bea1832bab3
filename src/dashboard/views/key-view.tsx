/** One key: its holders and its queue, in order, and its last events. */

import { useMemo } from "preact/hooks";
import type { ListedClaim, Overview } from "../../gateway/dashboard/view-types.ts";
import { ClaimsBanners } from "../components/claims-banners.tsx";
import { EmptyState, LoadingRows } from "../components/empty-state.tsx";
import { KeyHead } from "../components/key-head.tsx";
import { KeyHistory } from "../components/key-history.tsx";
import { KeyTables } from "../components/key-tables.tsx";
import { RevokeDialog } from "../components/revoke-dialog.tsx";
import { useTick } from "../data/clock.ts";
import { leaveKey } from "../data/navigation.ts";
import { useShortcuts } from "../data/shortcuts.ts";
import { useClaims } from "../data/use-claims.ts";
import { useEvents } from "../data/use-events.ts";
import type { Revocation } from "../data/use-revocation.ts";
import { useRevocation } from "../data/use-revocation.ts";
import { judgeFreshness } from "../model/freshness.ts";
import type { KeyQueue } from "../model/key-queue.ts";
import { findLost, splitQueue } from "../model/key-queue.ts";
import { findUrl } from "../model/shell-quote.ts";
import { makeVisible } from "../model/visible-text.ts";

interface KeyViewProps {
  readonly keyName: string;
  readonly overview: Overview | null;
}

export function KeyView({ keyName, overview }: KeyViewProps) {
  const claims = useClaims({ key: keyName });
  const events = useEvents(keyName);
  const now = useTick();
  const revocation = useRevocation();
  const { reading, readAt, leases, forbidden, invalid } = claims;
  const queue = useMemo(() => (reading === null ? null : splitQueue(reading.claims, keyName)), [reading, keyName]);
  const lost = useMemo(
    () => new Set([...findLost(events.ring.events), ...revocation.revokedTags]),
    [events.ring.events, revocation.revokedTags],
  );
  useShortcuts({ Escape: leaveKey });
  const elapsedMs = readAt === null ? 0 : Math.max(0, now - readAt);
  const { state } = judgeFreshness(claims, now);
  const refusal = reading?.revokeRefusal ?? null;
  const url = overview === null ? null : findUrl(overview.store);
  return (
    <>
      <KeyHead keyName={keyName} url={url} queue={queue} elapsedMs={elapsedMs} />
      <ClaimsBanners claims={claims} overview={overview} />
      <p class="done" role="status">
        {revocation.message}
      </p>
      {forbidden !== null ? (
        <EmptyState title="This key cannot be shown" tone="refused">
          {forbidden}
        </EmptyState>
      ) : invalid !== null ? (
        <EmptyState title="No lock can have this key" tone="refused">
          {makeVisible(invalid)}
        </EmptyState>
      ) : queue === null ? (
        <LoadingRows label="Loading the key" />
      ) : (
        <>
          <KeyTables
            queue={queue}
            columns={{ keyName, url, elapsedMs, leases, lost, canRevoke: refusal === null, onRevoke: revocation.ask }}
            refusal={refusal}
            isDimmed={state === "stale" || state === "disconnected"}
          />
          <section aria-labelledby="history">
            <h2 id="history">Last events</h2>
            <KeyHistory events={events} queue={[...queue.holders, ...queue.waiters]} readAt={readAt ?? now} />
          </section>
        </>
      )}
      <Asking
        keyName={keyName}
        queue={queue}
        elapsedMs={elapsedMs}
        hasFencing={overview?.fencing === true}
        url={url}
        seesAllKeys={overview?.seesAllKeys !== false}
        revocation={revocation}
        onRevoked={claims.refresh}
      />
    </>
  );
}

interface AskingProps {
  readonly keyName: string;
  readonly queue: KeyQueue | null;
  readonly elapsedMs: number;
  readonly hasFencing: boolean;
  readonly url: string | null;
  readonly seesAllKeys: boolean;
  readonly revocation: Revocation;
  readonly onRevoked: () => void;
}

/** The dialog, with what the newest list says of the holder: its lease may have been renewed since it was opened. */
function Asking({ keyName, queue, elapsedMs, hasFencing, url, seesAllKeys, revocation, onRevoked }: AskingProps) {
  const { claim } = revocation;
  if (claim?.token == null) return null;
  const newest = queue?.holders.find(({ tag }) => tag === claim.tag);
  return (
    <RevokeDialog
      keyName={keyName}
      claim={claim}
      token={claim.token}
      next={queue?.waiters[0] ?? null}
      leftMs={findLeft(newest ?? claim, elapsedMs)}
      isPresent={newest !== undefined}
      hasFencing={hasFencing}
      url={url}
      seesAllKeys={seesAllKeys}
      onRevoked={(isFree) => {
        revocation.finish(isFree);
        onRevoked();
      }}
      onClose={revocation.leave}
    />
  );
}

function findLeft({ remainingMs }: ListedClaim, elapsedMs: number): number | null {
  return remainingMs === null ? null : Math.max(0, remainingMs - elapsedMs);
}
