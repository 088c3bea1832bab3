/** Which holder of a key the viewer revokes, and which ones have been revoked here. */

import { useState } from "preact/hooks";
import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";

export interface Revocation {
  /** The holder that the dialog is about; null: there is none. */
  readonly claim: ListedClaim | null;
  /** The tags of the holders that were revoked on this page: not every store has events that say so. */
  readonly revokedTags: readonly string[];
  /** What was done, for the viewer. */
  readonly message: string;
  readonly ask: (claim: ListedClaim) => void;
  readonly leave: () => void;
  /** @param isFree the key was freed at once */
  readonly finish: (isFree: boolean) => void;
}

export function useRevocation(): Revocation {
  const [claim, setClaim] = useState<ListedClaim | null>(null);
  const [revokedTags, setRevokedTags] = useState<readonly string[]>([]);
  const [message, setMessage] = useState("");
  const finish = (isFree: boolean): void => {
    if (claim !== null) setRevokedTags((tags) => [...tags, claim.tag]);
    setMessage(
      isFree
        ? "Revoked, and the key is free."
        : "Revoked. The holder learns that it has lost the lock. The key is free when the holder releases it, or when the lease ends.",
    );
  };
  return { claim, revokedTags, message, ask: setClaim, leave: () => setClaim(null), finish };
}
