/** The columns of the holders and of the waiters of one key. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { describeMode, listOtherKeys, timeInState } from "../model/key-queue.ts";
import type { LeaseScale } from "../model/lease-scale.ts";
import { hintStore, revokeCommand } from "../model/shell-quote.ts";
import { formatAge, formatAmount } from "../model/time-format.ts";
import { makeVisible } from "../model/visible-text.ts";
import { CopyButton } from "./copy-button.tsx";
import { LeaseBar } from "./lease-bar.tsx";
import type { Column } from "./row-table.tsx";
import { Label } from "./safe-text.tsx";
import { StateMark } from "./state-mark.tsx";

export interface ClaimColumnsOptions {
  readonly keyName: string;
  /** The url of the store, for commands; null: they do without. */
  readonly url: string | null;
  readonly elapsedMs: number;
  readonly leases: LeaseScale;
  /** The tags of holders that have lost the lock already. */
  readonly lost: ReadonlySet<string>;
  readonly canRevoke: boolean;
  readonly onRevoke: (claim: ListedClaim) => void;
}

export function createHolderTable(options: ClaimColumnsOptions): readonly Column<ListedClaim>[] {
  const { keyName, url, lost, canRevoke, onRevoke } = options;
  return [
    {
      name: "state",
      title: "State",
      cell: ({ tag }) =>
        lost.has(tag) ? <StateMark tone="lost">revoked</StateMark> : <StateMark tone="held">holds</StateMark>,
    },
    labelColumn(keyName, true),
    {
      name: "token",
      title: "Token",
      cell: ({ token }) => (token === null ? <span class="muted">not listed</span> : <span class="code">{token}</span>),
    },
    tagColumn(),
    { name: "since", title: "Held for", cell: (claim) => formatAge(timeInState(claim) + options.elapsedMs) },
    leaseColumn(options),
    {
      name: "actions",
      title: <span class="visually-hidden">Actions</span>,
      cell: (claim) =>
        claim.token !== null && (
          <span class="actions">
            <CopyButton
              text={revokeCommand({ url, key: keyName, token: claim.token, reason: "", now: false })}
              hint={hintStore(url)}
              label="Copy command"
              description={`: revoke the lock of ${makeVisible(claim.label)}`}
            />
            {canRevoke && (
              <button type="button" class="button button-danger-quiet" onClick={() => onRevoke(claim)}>
                Revoke
                <span class="visually-hidden">{` the lock of ${makeVisible(claim.label)}`}</span>
              </button>
            )}
          </span>
        ),
    },
  ];
}

export function createWaiterTable(options: ClaimColumnsOptions): readonly Column<ListedClaim>[] {
  return [
    { name: "place", title: "#", cell: (_, index) => <span class="muted">{index + 1}</span> },
    labelColumn(options.keyName, false),
    {
      name: "mode",
      title: "Mode",
      cell: (claim) => <span class="muted">{describeMode(claim, options.keyName)}</span>,
    },
    tagColumn(),
    { name: "since", title: "Wait so far", cell: (claim) => formatAge(timeInState(claim) + options.elapsedMs) },
    leaseColumn(options),
  ];
}

/** @param hasMode it shows a mode that is not exclusive: there is no column for it */
function labelColumn(keyName: string, hasMode: boolean): Column<ListedClaim> {
  return {
    name: "label",
    title: "Label",
    cell: (claim) => {
      const others = listOtherKeys(claim, keyName);
      const mode = describeMode(claim, keyName);
      return (
        <span class="holder">
          <Label text={claim.label} />
          {hasMode && mode !== "exclusive" && <span class="count-badge">{mode}</span>}
          {others.length > 0 && (
            <span
              class="count-badge"
              title={others.map(makeVisible).join("\n")}
            >{`and ${formatAmount(others.length, "more key")}`}</span>
          )}
        </span>
      );
    },
  };
}

function tagColumn(): Column<ListedClaim> {
  return { name: "tag", title: "Tag", cell: ({ tag }) => <span class="code muted">{tag}</span> };
}

function leaseColumn({ elapsedMs, leases }: ClaimColumnsOptions): Column<ListedClaim> {
  return {
    name: "lease",
    title: "Lease left",
    cell: ({ tag, remainingMs }) => (
      <LeaseBar remainingMs={remainingMs} elapsedMs={elapsedMs} lengthMs={leases.lengthOf([tag], remainingMs ?? 0)} />
    ),
  };
}
