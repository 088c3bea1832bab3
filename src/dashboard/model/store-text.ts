/** The traits of a store in words. */

import type { Traits } from "../../spi/driver.ts";
import { formatExact } from "./time-format.ts";

/** A name, a value, and what it means for users. */
export interface TraitLine {
  readonly name: string;
  readonly value: string;
  readonly meaning: string;
}

const PERMITS: Readonly<Record<Traits["permits"], readonly [value: string, meaning: string]>> = {
  any: ["exclusive, shared, semaphores", "Locks can be shared, and semaphores have any number of permits."],
  shared: ["exclusive, shared", "Locks can be shared. There are no semaphores."],
  one: ["exclusive", "There are neither shared locks nor semaphores."],
};

const DURABILITY: Readonly<Record<Traits["durability"], string>> = {
  process: "Claims end with the process that keeps them.",
  restart: "Claims survive a restart of the store.",
  failover: "Claims survive the loss of a machine of the store.",
};

const RECALL: Readonly<Record<string, readonly [value: string, meaning: string]>> = {
  push: ["by a push", "A holder learns at once that another claim waits for its lock."],
  recheck: ["when it asks", "A holder learns with its next renewal that another claim waits for its lock."],
  false: ["no", "A holder does not learn that another claim waits for its lock."],
};

/** One line for each trait. */
export function describeTraits(traits: Traits): readonly TraitLine[] {
  const { lease, manyKeys, permits, fencing, fifo, durability, recall, list } = traits;
  const [modes, modesMeaning] = PERMITS[permits];
  const [recalled, recallMeaning] = RECALL[String(recall)] ?? ["", ""];
  return [
    { name: "Lease", value: nameLeases(lease), meaning: explainLeases(lease) },
    { name: "Modes", value: modes, meaning: modesMeaning },
    {
      name: "Fencing tokens",
      value: fencing ? "yes" : "no",
      meaning: fencing
        ? "The tokens of a key rise with every grant, also across restarts."
        : "Tokens do not rise: a resource cannot tell an old holder by its token.",
    },
    {
      name: "Order",
      value: fifo ? "by arrival" : "none",
      meaning: fifo ? "Claims are granted in the order of their arrival." : "Any waiter may be granted next.",
    },
    { name: "Durability", value: durability, meaning: DURABILITY[durability] },
    {
      name: "Several keys",
      value: manyKeys ? "one claim" : "one claim for each",
      meaning: manyKeys
        ? "One claim can hold several keys."
        : "A lock of several keys makes one claim after another, in the order of the keys.",
    },
    { name: "Recall", value: recalled, meaning: recallMeaning },
    {
      name: "List",
      value: list === "own" ? "of the gateway" : "of all clients",
      meaning:
        list === "own"
          ? "This store keeps no keys: only claims through this gateway are seen."
          : "The claims of all clients are seen.",
    },
  ];
}

function nameLeases({ claim, sessionMs }: Traits["lease"]): string {
  const session = sessionMs === undefined ? [] : [`sessions of ${formatExact(sessionMs)}`];
  return [...(claim ? ["for each claim"] : []), ...session].join(", ");
}

function explainLeases({ claim, endsWithConnection }: Traits["lease"]): string {
  const own = claim ? "A claim may have a lease of its own." : "A claim lasts as long as the session of its client.";
  return endsWithConnection === true ? `${own} A session ends with its connection.` : own;
}
