// Loaded with --import into the `holdfast serve` of a build: answers the bench's questions about its CPU.

import { answerCalls } from "../harness/calls.ts";

answerCalls({});
