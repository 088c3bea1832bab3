/** What a revocation will do, for the holder and for the next claim. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { describeRemoval, describeRevocation } from "../model/revocation.ts";
import { Icon } from "./icons.tsx";
import { FullText } from "./safe-text.tsx";

interface RevokeConsequencesProps {
  readonly now: boolean;
  readonly leftMs: number | null;
  readonly next: ListedClaim | null;
  readonly hasFencing: boolean;
}

export function RevokeConsequences({ now, leftMs, next, hasFencing }: RevokeConsequencesProps) {
  return (
    <div class={now ? "consequences consequences-now" : "consequences"}>
      <Icon name={now ? "lost" : "unknown"} />
      <div>
        <p>{now ? describeRemoval(hasFencing) : describeRevocation(leftMs)}</p>
        {next !== null && (
          <p>
            First in the queue: <FullText text={next.label || "a claim without a label"} />
          </p>
        )}
      </div>
    </div>
  );
}
