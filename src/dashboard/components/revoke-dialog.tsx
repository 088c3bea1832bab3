/** Asks before a lock is revoked: what will happen, and to which holder. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { RequestError, revoke } from "../data/api.ts";
import { listOtherKeys } from "../model/key-queue.ts";
import { MAX_REASON_LENGTH, toReason } from "../model/revocation.ts";
import { hintStore, revokeCommand } from "../model/shell-quote.ts";
import { CopyButton } from "./copy-button.tsx";
import { Dialog } from "./dialog.tsx";
import { RevokeConsequences } from "./revoke-consequences.tsx";
import { RevokeTarget } from "./revoke-target.tsx";

interface RevokeDialogProps {
  readonly keyName: string;
  readonly claim: ListedClaim;
  readonly token: string;
  /** The url of the store, for the command; null: it does without. */
  readonly url: string | null;
  /** False: the claim may have keys that the viewer may not see. */
  readonly seesAllKeys: boolean;
  /** The first claim that waits for the key. */
  readonly next: ListedClaim | null;
  /** What remains of the lease now; null: it has a session. */
  readonly leftMs: number | null;
  /** False: the claim is in the list no more. */
  readonly isPresent: boolean;
  readonly hasFencing: boolean;
  readonly onRevoked: (now: boolean) => void;
  readonly onClose: () => void;
}

export function RevokeDialog(props: RevokeDialogProps) {
  const { keyName, claim, token, url, seesAllKeys, next, leftMs, isPresent, hasFencing, onRevoked, onClose } = props;
  const [text, setText] = useState("");
  const [now, setNow] = useState(false);
  const [isSending, setSending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  const reason = toReason(text);
  const reasonField = useRef<HTMLInputElement>(null);
  // after the dialog is open, and before a key can go elsewhere
  useLayoutEffect(() => reasonField.current?.focus(), []);

  const send = async (close: () => void): Promise<void> => {
    if (reason === null || isSending) return;
    setSending(true);
    setFailure(null);
    try {
      await revoke({ key: keyName, token, reason, now });
      close();
      onRevoked(now);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      setFailure(
        error.kind === "unreachable"
          ? "No answer from the gateway: it is not known whether the lock is revoked."
          : error.message,
      );
    } finally {
      setSending(false);
    }
  };
  return (
    <Dialog title="Revoke this lock" onClose={onClose}>
      {(close) => (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void send(close);
          }}
        >
          <RevokeTarget
            keyName={keyName}
            claim={claim}
            token={token}
            otherKeys={listOtherKeys(claim, keyName)}
            seesAllKeys={seesAllKeys}
          />
          <label class="check">
            <input type="checkbox" checked={now} onChange={(event) => setNow(event.currentTarget.checked)} />
            <span>Free the key at once, without waiting for the holder</span>
          </label>
          <RevokeConsequences now={now} leftMs={leftMs} next={next} hasFencing={hasFencing} />
          <label class="stacked">
            <span>Reason (required; the log and the events have it)</span>
            <input
              ref={reasonField}
              type="text"
              value={text}
              maxLength={MAX_REASON_LENGTH}
              required
              autocomplete="off"
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <div class="dialog-status" aria-live="polite">
            {!isPresent && <p>This claim has ended meanwhile. There is nothing to revoke.</p>}
            {failure !== null && <p class="failure">{failure}</p>}
          </div>
          <div class="dialog-actions">
            <CopyButton
              text={revokeCommand({ url, key: keyName, token, reason: reason ?? "", now })}
              hint={hintStore(url)}
              label="Copy as command"
            />
            <span class="grow" />
            <button type="button" class="button" onClick={close}>
              Cancel
            </button>
            <button type="submit" class="button button-danger" disabled={reason === null || isSending || !isPresent}>
              {isSending ? "Revoking" : now ? "Revoke and free" : "Revoke"}
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}
