/** Waits for conditions within the same program. */

export class Signal {
    #waiting: (() => void)[] = [];

    /** Signals a change: all waiting conditions are checked again. */
    notify(): void {
        const waiting = this.#waiting;
        this.#waiting = [];
        for (const wake of waiting) {
            wake();
        }
    }

    /** Returns once the condition holds. An abort of `signal` counts as a change. */
    async until(condition: () => boolean, signal?: AbortSignal): Promise<void> {
        if (condition()) {
            return;
        }
        const notify = () => this.notify();
        signal?.addEventListener("abort", notify, { once: true });
        try {
            while (!condition()) {
                await new Promise<void>(resolve => this.#waiting.push(resolve));
            }
        } finally {
            signal?.removeEventListener("abort", notify);
        }
    }
}
