import { test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { crowdEnds } from "../support/crowd.ts";

test("2,000 waits that end at once cost nobody a lock and leave no place: a majority of memories", async () => {
  const stores = Array.from({ length: 3 }, () => memoryStore());
  await crowdEnds({
    driver: () => quorum(stores.map((store) => memory({ store }))),
    placesOn: async (key) => Math.max(...stores.map(({ table }) => table.mint.lines.get(key)?.seats.size ?? 0)),
  });
}, 90_000);
