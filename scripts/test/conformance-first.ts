import type { TestSpecification } from "vitest/node";
import { BaseSequencer } from "vitest/node";

/**
 * Without a cache of durations, as in a fresh clone, Vitest starts with the largest file. A file of test/conformance is small, since
 * all of its tests stand elsewhere, and takes the longest: begun last, it would run alone at the end of its suite.
 */
export class ConformanceFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isConformance = ({ moduleId }: TestSpecification): boolean => moduleId.includes("/test/conformance/");
    const sorted = await super.sort(files);
    return [...sorted.filter(isConformance), ...sorted.filter((file) => !isConformance(file))];
  }
}
