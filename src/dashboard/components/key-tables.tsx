/** The holders of one key and the claims that wait for it, both in the order of its queue. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import type { KeyQueue } from "../model/key-queue.ts";
import { refusalFor } from "../model/revocation.ts";
import type { ClaimColumnsOptions } from "./claim-columns.tsx";
import { createHolderTable, createWaiterTable } from "./claim-columns.tsx";
import { RowTable } from "./row-table.tsx";

interface KeyTablesProps {
  readonly queue: KeyQueue;
  readonly columns: ClaimColumnsOptions;
  /** Why nothing can be revoked; null: it can. */
  readonly refusal: string | null;
  readonly isDimmed: boolean;
}

const HOLDER_PX = [44, 150] as const;
const WAITER_PX = [36, 62] as const;

export function KeyTables({ queue: { holders, waiters }, columns, refusal, isDimmed }: KeyTablesProps) {
  const tables = { isDimmed, idOf: ({ tag }: ListedClaim) => tag };
  return (
    <>
      <section aria-labelledby="holders">
        <h2 id="holders">Holders</h2>
        {holders.length === 0 ? (
          <p class="muted">No claim holds this key.</p>
        ) : (
          <RowTable
            label="Holders"
            name="holding"
            rows={holders}
            columns={createHolderTable(columns)}
            rowPx={HOLDER_PX}
            {...tables}
          />
        )}
        <RevokeNote holders={holders} refusal={refusal} />
      </section>
      <section aria-labelledby="queue">
        <h2 id="queue">Queue</h2>
        {waiters.length === 0 ? (
          <p class="muted">No claim waits for this key.</p>
        ) : (
          <RowTable
            label="Queue"
            name="waiting"
            rows={waiters}
            columns={createWaiterTable(columns)}
            rowPx={WAITER_PX}
            isPassive
            {...tables}
          />
        )}
      </section>
    </>
  );
}

interface RevokeNoteProps {
  readonly holders: readonly ListedClaim[];
  /** Why nothing can be revoked; null: it can. */
  readonly refusal: string | null;
}

/** Why there is no button to revoke. */
function RevokeNote({ holders, refusal }: RevokeNoteProps) {
  if (holders.length === 0) return null;
  const reasons = new Set(holders.flatMap((claim) => refusalFor(claim, refusal) ?? []));
  if (reasons.size === 0) return null;
  return <p class="caption">{[...reasons].join(" ")}</p>;
}
