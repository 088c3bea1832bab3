/** Which lock a revocation is about. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { formatAmount } from "../model/time-format.ts";
import { FullText } from "./safe-text.tsx";

interface RevokeTargetProps {
  readonly keyName: string;
  readonly claim: ListedClaim;
  readonly token: string;
  readonly otherKeys: readonly string[];
  /** False: the claim may have keys that the viewer may not see. */
  readonly seesAllKeys: boolean;
}

export function RevokeTarget({ keyName, claim, token, otherKeys, seesAllKeys }: RevokeTargetProps) {
  return (
    <dl class="facts target">
      <div>
        <dt>Key</dt>
        <dd>
          <FullText text={keyName} isCode />
        </dd>
      </div>
      <div>
        <dt>Holder</dt>
        <dd>
          <FullText text={claim.label || "without a label"} />
        </dd>
      </div>
      <div>
        <dt>Tag</dt>
        <dd class="code">{claim.tag}</dd>
      </div>
      <div>
        <dt>Token</dt>
        <dd class="code">{token}</dd>
      </div>
      {(otherKeys.length > 0 || !seesAllKeys) && (
        <div>
          <dt>Also</dt>
          <dd>
            {otherKeys.length > 0 && <OtherKeys keys={otherKeys} />}
            {!seesAllKeys && "Keys of this claim that you may not see are lost, too."}
          </dd>
        </div>
      )}
    </dl>
  );
}

function OtherKeys({ keys }: { readonly keys: readonly string[] }) {
  return (
    <>
      {`${formatAmount(keys.length, "other key")} of the same claim, which it loses with it:`}
      <ul>
        {keys.map((key) => (
          <li key={key}>
            <FullText text={key} isCode />
          </li>
        ))}
      </ul>
    </>
  );
}
