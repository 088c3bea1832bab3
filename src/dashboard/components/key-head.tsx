/** Above the queue of a key: its name, and what is true of it now. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { leaveKey } from "../data/navigation.ts";
import type { KeyQueue } from "../model/key-queue.ts";
import { describeHolding, timeInState } from "../model/key-queue.ts";
import { DEFAULT_QUERY } from "../model/routes.ts";
import { hintStore, showCommand } from "../model/shell-quote.ts";
import { formatAge, formatAmount } from "../model/time-format.ts";
import { CopyButton } from "./copy-button.tsx";
import { Icon } from "./icons.tsx";
import { Link } from "./link.tsx";
import { FullText } from "./safe-text.tsx";
import { StateMark } from "./state-mark.tsx";

interface KeyHeadProps {
  readonly keyName: string;
  /** The url of the store, for commands; null: they do without. */
  readonly url: string | null;
  /** null: not read yet. */
  readonly queue: KeyQueue | null;
  readonly elapsedMs: number;
}

export function KeyHead({ keyName, url, queue, elapsedMs }: KeyHeadProps) {
  return (
    <div class="key-head">
      <Link to={{ view: "keys", query: DEFAULT_QUERY }} class="back" onOpen={leaveKey}>
        <Icon name="back" />
        Back
      </Link>
      <div class="key-title">
        <h1>
          <FullText text={keyName} isCode />
        </h1>
        <CopyButton
          text={showCommand(keyName, url)}
          hint={hintStore(url)}
          label="Copy as command"
          description=": show this key"
        />
      </div>
      {queue !== null && (
        <p class="key-summary">
          <KeySummary keyName={keyName} queue={queue} elapsedMs={elapsedMs} />
        </p>
      )}
    </div>
  );
}

interface KeySummaryProps extends Omit<KeyHeadProps, "url"> {
  readonly queue: KeyQueue;
}

function KeySummary({ keyName, queue: { holders, waiters }, elapsedMs }: KeySummaryProps) {
  const [first, ...others] = holders;
  const waiting =
    waiters.length === 0 ? (
      <span class="muted">no waiters</span>
    ) : (
      <StateMark tone="waiting">{formatAmount(waiters.length, "waiter")}</StateMark>
    );
  if (first === undefined) {
    return (
      <>
        <StateMark tone="over">{waiters.length === 0 ? "free" : "not held"}</StateMark>
        {waiting}
      </>
    );
  }
  return (
    <>
      <StateMark tone="held">{describeHeld(holders, elapsedMs)}</StateMark>
      <span class="muted">{describeHolding([first, ...others], keyName)}</span>
      {waiting}
    </>
  );
}

function describeHeld(holders: readonly ListedClaim[], elapsedMs: number): string {
  const longest = Math.max(...holders.map(timeInState)) + elapsedMs;
  return holders.length === 1
    ? `held for ${formatAge(longest)}`
    : `${formatAmount(holders.length, "holder")}, the first for ${formatAge(longest)}`;
}
