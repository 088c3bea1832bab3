import { test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { crowdEnds } from "../support/crowd.ts";

test("2,000 waits that end at once cost nobody a lock and leave no place: memory", async () => {
  const store = memoryStore();
  await crowdEnds({
    driver: () => memory({ store }),
    placesOn: async (key) => store.table.mint.lines.get(key)?.seats.size ?? 0,
  });
}, 90_000);
