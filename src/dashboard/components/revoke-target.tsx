/** Which lock a revocation is about. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { formatAmount } from "../model/time-format.ts";
import { FullText } from "./safe-text.tsx";

interface RevokeTargetProps {
  readonly keyName: string;
  readonly claim: ListedClaim;
  readonly token: string;
  readonly otherKeys: readonly string[];
}

export function RevokeTarget({ keyName, claim, token, otherKeys }: RevokeTargetProps) {
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
      {otherKeys.length > 0 && (
        <div>
          <dt>Also</dt>
          <dd>
            {`${formatAmount(otherKeys.length, "other key")} of the same claim, which it loses with it:`}
            <ul>
              {otherKeys.map((key) => (
                <li key={key}>
                  <FullText text={key} isCode />
                </li>
              ))}
            </ul>
          </dd>
        </div>
      )}
    </dl>
  );
}
