import type { TestSpecification } from "vitest/node";
import { BaseSequencer } from "vitest/node";

/** Parts of paths. Their tests stand elsewhere, or take long for their length. */
const LONG_FILES = ["/test/conformance/", "/bonus-example.test.ts", "/redis/queue-fuzz.test.ts", "/simulation/quorum/"];

/**
 * Without a cache of durations, as in a fresh clone, Vitest starts with the largest file. Small files that take long would be begun
 * last, and each would run alone at the end of its suite.
 */
export class LongFilesFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean => LONG_FILES.some((part) => moduleId.includes(part));
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}
