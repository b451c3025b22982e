# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""The paths of one history: rounds of drafting, one pass of the target and verification, until each path has ended.

Paths go in slots, side by side. One that has ended leaves its slot to the next, so that the work follows the events and not
the longest path. What a path becomes does not depend on its neighbours.
"""

import math

import numpy as np

from stream_tpp.kernels.native.native import ZERO, native
from stream_tpp.kernels.native.random import stream_state, uniform
from stream_tpp.kernels.native.vectors import PANEL
from stream_tpp.kernels.random import DRAFT
from stream_tpp.sampling.native.buffers import new_laws, new_work, widened
from stream_tpp.sampling.native.network import (
    copy_law,
    embed,
    embed_event,
    encode,
    enter_draft,
    read_laws,
    set_law,
    step_draft,
)
from stream_tpp.sampling.native.verification import draw, verify

PASSES, ROW_PASSES, DRAFTED, ACCEPTED, EVENTS, REJECTED, FAILED = 0, 1, 2, 3, 4, 5, 6


@native
def sample_paths(
    weights,
    prefix_keys,
    prefix_values,
    prefix_length,
    states,
    mixture,
    type_logits,
    last,
    elapsed,
    low,
    log_mean,
    log_std,
    keys,
    permitted,
    mode,
    gamma,
    reanchor_after,
    horizon,
    max_events,
    slots,
):
    """Sample one path for each of the random keys [P], uint64.

    prefix_keys and prefix_values [L, D, S] hold the history; states [2, D], mixture [3 M] and type_logits [K] are what
    `read_history` says of its end. last: y, type, time of the last event and time of BOS. elapsed: seconds since; low: their y.
    permitted: bool [K], or empty. horizon inf or max_events 2^62: no such end. Returns leads, types and log masses [P, N],
    lengths [P] (the event past the horizon is counted), and figures [7].
    """
    encoder, draft = weights.encoder, weights.draft
    paths, width = len(keys), encoder.event.bias.shape[0]
    kinds, draft_width = weights.head.kinds, draft.event.bias.shape[0]
    layers = encoder.qkv.weight.shape[0]
    places = gamma + 1

    capacity = 2 * places + 16
    leads = np.full((paths, capacity), np.inf)
    types = np.full((paths, capacity), -1, np.int64)
    log_masses = np.zeros((paths, capacity))
    lengths = np.zeros(paths, np.int64)
    figures = np.zeros(7, np.int64)

    columns = (2 * places + PANEL - 1) // PANEL * PANEL
    own_keys = np.zeros((slots, layers, width, columns), np.float32)
    own_values = np.zeros((slots, layers, width, columns), np.float32)
    work = new_work(weights, slots * places, prefix_keys.shape[2] + columns + PANEL)
    p = new_laws(slots, places, weights.head.components, kinds)
    q = new_laws(slots, max(gamma, 1), draft.head.components, kinds)
    # The law of the event to come, before anything is drawn, is the same on all paths.
    first = new_laws(1, 1, weights.head.components, kinds)
    set_law(first, 0, 0, mixture, type_logits, permitted)
    anchors = np.zeros((slots, max(width, draft.start.bias.shape[0])), np.float32)
    state = np.zeros((slots, max(draft.start.bias.shape[0], width)), np.float32)
    events = np.zeros((slots, max(draft_width, width)), np.float32)

    # Of each slot: its path, how far it is, and the events of a round: the pending one, then those drafted.
    path = np.full(slots, -1, np.int64)
    number = np.zeros(slots, np.int64)
    clock = np.zeros(slots)
    since = np.zeros(slots, np.int64)
    reach = np.zeros(slots, np.int64)
    y = np.zeros((slots, places))
    kind = np.zeros((slots, places), np.int64)
    time = np.zeros((slots, places))
    limit = np.zeros(slots, np.int64)
    row_slot, row_column = np.zeros(slots * places, np.int64), np.zeros(slots * places, np.int64)
    drafting = np.zeros(slots, np.int64)
    now = last.time + elapsed
    following = 0

    while True:
        running = 0
        for s in range(slots):
            if path[s] < 0 and following < paths:
                path[s], following = following, following + 1
                number[s] = since[s] = 0
                # The pending event of a path's first round is the last of the history.
                reach[s] = -1
                clock[s] = -elapsed
                y[s, 0], kind[s, 0], time[s, 0] = last.y, last.kind, last.time
                anchors[s, :width] = states[0]
            running += path[s] >= 0
        if not running:
            return leads, types, log_masses, lengths, figures

        # The draft proposes. A path whose next event is the target's own has no use for proposals, nor has any for more than
        # it may still hold beside the target's event that follows them. Whoever drafts longest comes first: the others drop out.
        for s in range(slots):
            if path[s] >= 0:
                limit[s] = 0 if since[s] >= reanchor_after else min(gamma, max_events - lengths[path[s]] - 1)
        drafters = ZERO
        for length in range(gamma, 0, -1):
            for s in range(slots):
                if path[s] >= 0 and limit[s] == length:
                    drafting[drafters] = s
                    work.hidden[drafters, :width] = anchors[s, :width]
                    drafters += 1
        if drafters:
            enter_draft(draft, work.hidden, drafters, state)
            for i in range(limit[drafting[0]]):
                while limit[drafting[drafters - 1]] <= i:
                    drafters -= 1
                for r in range(drafters):
                    s = drafting[r]
                    embed_event(draft.event, y[s, i], kind[s, i], time[s, i], events[r])
                step_draft(draft, events, drafters, state, work)
                for r in range(drafters):
                    s = drafting[r]
                    set_law(q, s, i, work.mixture[r], work.types[r], permitted)
                    numbers = stream_state(keys[path[s]], number[s], DRAFT)
                    above = low if i == 0 and number[s] == 0 else np.nan
                    new, new_kind = draw(
                        q,
                        s,
                        i,
                        above,
                        uniform(numbers, 3 * i),
                        uniform(numbers, 3 * i + 1),
                        uniform(numbers, 3 * i + 2),
                        work.scratch,
                    )
                    y[s, i + 1], kind[s, i + 1] = new, new_kind
                    time[s, i + 1] = time[s, i] + math.exp(new * log_std + log_mean)

        # One pass of the target over the pending and the drafted events.
        furthest = 0
        for s in range(slots):
            if path[s] >= 0:
                furthest = max(furthest, reach[s] + limit[s] + 1)
        if furthest > columns:
            columns = (2 * furthest + PANEL - 1) // PANEL * PANEL
            own_keys, own_values = widened(own_keys, columns), widened(own_values, columns)
            work = new_work(weights, slots * places, prefix_keys.shape[2] + columns + PANEL)
        rows = ZERO
        for s in range(slots):
            if path[s] >= 0:
                # What the history's last event says is known.
                for i in range(1 if number[s] == 0 else 0, limit[s] + 1):
                    row_slot[rows], row_column[rows] = s, reach[s] + i
                    place = prefix_length + reach[s] + i
                    embed(encoder, y[s, i], kind[s, i], time[s, i], last.origin, place, work.x[rows], work.clock[rows])
                    rows += 1
        if rows:
            encode(encoder, rows, row_slot, row_column, prefix_keys, prefix_values, prefix_length, own_keys, own_values, work)
            read_laws(weights.head, work.hidden, rows, work)
        figures[PASSES] += 1

        row = ZERO
        for s in range(slots):
            if path[s] < 0:
                continue
            known = 1 if number[s] == 0 else 0
            if known:
                copy_law(first, 0, 0, p, s, 0)
            for i in range(known, limit[s] + 1):
                set_law(p, s, i, work.mixture[row + i - known], work.types[row + i - known], permitted)
            above = low if number[s] == 0 else np.nan
            accepted, new, new_kind = verify(
                mode, p, q, s, y[s, 1:], kind[s, 1:], limit[s], above, keys[path[s]], number[s], work.scratch
            )
            if accepted < 0:
                figures[FAILED] = 1
                return leads, types, log_masses, lengths, figures
            figures[ROW_PASSES] += 1
            figures[DRAFTED] += limit[s]
            figures[ACCEPTED] += accepted
            figures[REJECTED] += accepted < limit[s]
            anchors[s, :width] = states[1] if accepted < known else work.hidden[row + accepted - known, :width]
            row += limit[s] + 1 - known

            # The accepted events and the one after them go on the path, as far as its end.
            if lengths[path[s]] + places > capacity:
                capacity *= 2
                leads, types, log_masses = _longer(leads, np.inf), _longer(types, -1), _longer(log_masses, 0.0)
            at = path[s]
            for i in range(accepted + 1):
                if clock[s] > horizon:
                    break
                event_y = y[s, i + 1] if i < accepted else new
                event_kind = kind[s, i + 1] if i < accepted else new_kind
                clock[s] = max(clock[s] + math.exp(event_y * log_std + log_mean), 0.0)
                leads[at, lengths[at]] = clock[s]
                types[at, lengths[at]] = event_kind
                log_masses[at, lengths[at]] = p.log_mass[s, i]
                lengths[at] += 1
                figures[EVENTS] += 1
            if clock[s] > horizon or lengths[at] >= max_events:
                path[s] = -1
                continue
            since[s] = 0 if accepted == limit[s] else since[s] + accepted + 1
            reach[s] += accepted + 1
            number[s] += 1
            y[s, 0], kind[s, 0], time[s, 0] = new, new_kind, now + clock[s]


@native
def _longer(array, filler):
    longer = np.full((array.shape[0], 2 * array.shape[1]), filler, array.dtype)
    longer[:, : array.shape[1]] = array
    return longer
