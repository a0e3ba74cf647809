#!lua
--[[ Applies charges to buckets, in one step.

Redis runs one script at a time. What is read here is still true when it is written, so two instances that ask
at the same moment cannot both be given the last unit.

    KEYS     ratelimit:login:10.0.0.1   ratelimit:all   …          one for each charge
    ARGV[1]  │ header │ charge │ charge │ charge │ …               packed, see script_codec.rs
                      └─ one decision ──┘└─ the next …
    reply    now,  paid, state, state,  paid, state, …             a state is four numbers; refunds: how many

A decision is all or nothing. First each of its charges is weighed against its bucket; then, if none vetoes, those
that fit are spent. Buckets are written last, each once, however many charges met it. The reply has the states as
they were weighed, and the time: from these Rust derives remaining, reset_after and retry_after, by the very
functions that the memory store uses. The script need only know whether a charge fits.

    act         vetoes if it does not fit   spends
    0 take      yes                         if it fits and nobody vetoes
    1 try       no                          if it fits and nobody vetoes
    2 record    no                          if nobody vetoes
    3 look      yes                         never
    4 refund    no                          gives back
    + 16        of a try: it and the try before it spend together, or not at all
    + 32        of a refund: it is made once; the next key is where that is marked
    + 64        nothing of the decision is spent: it only weighs
    + 128       another charge of the decision has the same key

Each kind of bucket below is the twin of a file in ratewright-core/src/algorithm, which says what it means.

    kind        key is a   holds
    1 token     hash       full_at of QUOTA: "MICROS", or "MICROS PART/OVER" with a fraction
    2 queue     hash       the same
    3 stepped   hash       spent of QUOTA: "UNITS since MICROS"
    4 counter   hash       window, opened_at, previous, current
    5 fixed     hash       window, opened_at, count
    6 log       list       "UNITS DEEPEST": units spent, and the most that are kept; then the charges in chunks, oldest first:
                           "NEWEST UNITS COUNT SINCE: AFTER AFTER*COST …", in microseconds after SINCE

A bucket's state means something only under the quota that wrote it, so its field is named after that quota. Another quota
that comes to the same key begins with the same share spent, rounded up, and from then on has a state of its own. The first
one's is parked in a field `state of QUOTA` until its quota comes back. So no quota repays what another granted, also if
instances with different policy files share a Redis.

Numbers are whole and below 2^53, where a double is exact. Time ends there: no bucket is charged past it. Sums that lie
beyond are rounded, but never to below 2^53, so that they compare as they should with all that may be kept.
`redis.call` writes numbers with all their digits; `..` and `tostring` would keep 14. A state of another kind, or one
that somebody tampered with, reads as never seen.

The clock may be set back. A state that lies further ahead than it ever could is mended: pulled back, and written
even if the charge is denied, or its key would be shut out until the clock has caught up. A look writes nothing. --]]

local call, pcall, format = redis.call, redis.pcall, string.format
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local TIME_MAX = 9007199254740991 -- quantity.rs

local frame = ARGV[1]
local min_ttl, readable, latest, position = struct.unpack('<I8BI8', frame)

local now = tonumber(ARGV[2]) -- tests bring their own time
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end

-- A whole number from 0 up, or nothing.
local function whole(text)
    local number = tonumber(text)
    return number and number >= 0 and min(ceil(number), TIME_MAX) or nil
end

-- A number of units.
local function count(text)
    local number = whole(text)
    return number and min(number, 4294967295)
end

-- How many of `cost` units may be added to a count: none gets deeper than two capacities.
local function counted(spent, cost, capacity)
    return min(max(min(2 * capacity, 4294967295) - spent, 0), cost)
end

-- Sets a key's time to live: one second longer than its state matters, at least min_ttl.
local function renew(key, gone_at, not_shorter)
    local left = min(max(gone_at - now, 0), TIME_MAX)
    local ttl = format('%d', max(ceil(left / 1000) + 1000, min_ttl))
    if not_shorter then
        call('PEXPIRE', key, ttl, 'GT')
    else
        call('PEXPIRE', key, ttl)
    end
end

-- The half second in which a state is gone. Within it a key need not be given a new time to live: the one it has, from
-- the first state that was gone in the same half second, is still half a second longer than that.
local function half(gone_at)
    return gone_at - gone_at % 500000
end

-- a * b / c, rounded up, exact where a <= 2 * c < 2^53. The product may have more bits than a double, so b is taken digit by
-- digit, in the largest base that keeps what is left over exact. That may be negative: at most half of c, either way.
local function share(a, b, c)
    if a * b <= TIME_MAX then
        local product = a * b
        local rest = product % c
        return (product - rest) / c + (rest > 0 and 1 or 0)
    end
    local times = floor(a / c + 0.5)
    local result, rest, a = times * b, 0, a - times * c
    local _, bits = math.frexp(TIME_MAX / c)
    local base, place, quotient = math.ldexp(1, bits - 1), 1, 0
    while place * base <= b do
        place = place * base
    end
    while place >= 1 do
        local digit = floor(b / place)
        b, rest = b - digit * place, rest * base + a * digit
        times = floor(rest / c + 0.5)
        quotient, rest, place = quotient * base + times, rest - times * c, place / base
    end
    return result + quotient + (rest > 0 and 1 or 0)
end

-- ═══ buckets that belong to a quota ═══
--   field                          how the name of the field in use begins; the quota follows
--   parse(text)                    a state from a text, or nothing
--   ends_at(state, quota)          from when on it means nothing under that quota
--   inherit(state, writer, quota)  what a quota begins with where another one has left this state
-- `quota` and `writer` are names of fields, in use or parked.

local PARKED = 'state of '
local PARKED_MAX = 8 -- more policy files than anybody deploys at once

local function starts_with(text, start)
    return text:find(start, 1, true) == 1
end

-- Where the state of a field in use is parked.
local parked_fields = {}
local function parked_field(field)
    local parked = parked_fields[field]
    if not parked then
        parked = PARKED .. field:match(' of (.*)$')
        parked_fields[field] = parked
    end
    return parked
end

-- What a hash holds: the name and text of the field in use, and the parked ones by their names, if there are any. Without
-- either, nothing but whether fields can be added to the key, and whether it has others: those of an older version, whose
-- instances may still count by them.
local function read_fields(kind, key)
    local fields = pcall('HGETALL', key)
    local writer, text, parked
    for i = 1, #fields, 2 do -- none if the key is not a hash
        local field = fields[i]
        if starts_with(field, kind.field) then
            writer, text = field, fields[i + 1]
        elseif starts_with(field, PARKED) then
            parked = parked or {}
            parked[field] = fields[i + 1]
        end
    end
    if not writer and not parked then
        return nil, not fields.err, #fields > 0
    end
    local state = text and kind.parse(text)
    local ends_at = state and kind.ends_at(state, writer) or 0
    return { writer = writer, text = text, state = state, ends_at = ends_at, parked = parked }
end

-- Finds the state of a quota that has no field in use.
local function find_own(kind, bucket)
    local fields, is_open, has_others = read_fields(kind, bucket.key)
    if not fields then
        bucket.is_open, bucket.has_others = is_open, has_others
        return
    end
    bucket.is_shared, bucket.fields = true, fields
    local own = fields.parked and kind.parse(fields.parked[parked_field(bucket.quota)])
    if own and kind.ends_at(own, bucket.quota) > now then
        return own
    end
    if fields.ends_at > now then
        bucket.inherits = true
        bucket.must_write = true
        return kind.inherit(fields.state, fields.writer, bucket.quota)
    end
end

-- Removes the parked state of a quota that comes back, and those that have expired; if too many remain, also the one that
-- expires first. Returns until when others are parked.
local function tidy(kind, key, parked, own)
    local gone, n_parked, parked_until, soonest, soonest_at = {}, 0, 0, nil, nil
    for field, text in pairs(parked) do
        local state = field ~= own and kind.parse(text)
        local ends_at = state and kind.ends_at(state, field) or 0
        if ends_at <= now then
            gone[#gone + 1] = field
        else
            n_parked, parked_until = n_parked + 1, max(parked_until, ends_at)
            if not soonest or ends_at < soonest_at or ends_at == soonest_at and field < soonest then
                soonest, soonest_at = field, ends_at
            end
        end
    end
    if n_parked > PARKED_MAX then
        gone[#gone + 1] = soonest
    end
    if #gone > 0 then
        call('HDEL', key, unpack(gone))
    end
    return parked_until
end

-- Parks the state in use if another quota wrote it. Returns until when states are parked.
local function park(kind, bucket)
    -- What was read does not hold if another charge of this call may have written since.
    local fields = bucket.fields or read_fields(kind, bucket.key)
    bucket.fields = nil
    if not fields then
        return 0
    end
    local key, writer, parked = bucket.key, fields.writer, fields.parked
    local parked_until = 0
    if writer and writer ~= bucket.quota then
        if fields.ends_at > now then
            local field = parked_field(writer)
            call('HSET', key, field, fields.text)
            parked_until = fields.ends_at
            if parked then
                parked[field] = fields.text
            end
        end
        call('HDEL', key, writer)
    end
    return parked and tidy(kind, key, parked, parked_field(bucket.quota)) or parked_until
end

-- Every kind has the same functions. `bucket` is the state as it is worked on; the other arguments are the charge's,
-- in the order of the frame.
--   load(key, quota, …) the state behind a key
--   weigh(bucket, …)    mends it, and tells whether the charge fits, and the state for the reply
--   spend(bucket, …)    spends
--   refund(bucket, …)   gives back
--   gone_at(bucket)     from when on it means nothing
--   write(bucket)       writes it

-- ═══ token bucket, and leaky bucket as a meter ═══
-- at, part/over: when it will be full again.

local function token_bucket()
    local kind = { field = 'full_at of ' }
    local stamp = format('%d', now / 1000)

    function kind.parse(text)
        local at, part, over = tonumber(text), 0, 1
        if not at and type(text) == 'string' then
            at, part, over = text:match('^(%d+) (%d+)/(%d+)$')
            part, over = count(part), count(over)
        end
        at = at and whole(at)
        return at and { at = at, part = part, over = over }
    end

    function kind.ends_at(state)
        return min(state.at + (state.part > 0 and 1 or 0), TIME_MAX)
    end

    -- How long a quota takes to fill, in whole microseconds, and rounded up to them.
    local fills = {}
    local function fill_of(quota)
        local fill = fills[quota]
        if not fill then
            local micros, part = quota:match(' of %d+ (%d+)(.*)$')
            micros = whole(micros) or 1
            fill = { max(micros, 1), micros + (part and part ~= '' and 1 or 0) }
            fills[quota] = fill
        end
        return fill[1], fill[2]
    end

    -- The same share of the quota is spent, in whole microseconds.
    function kind.inherit(state, writer, quota)
        local filled = fill_of(writer)
        local _, fill = fill_of(quota)
        local left = min(kind.ends_at(state) - now, 2 * filled)
        return { at = now + share(left, fill, filled), part = 0, over = 1 }
    end

    function kind.load(key, quota)
        -- Up to 16 fields have room without another allocation; the rarer ones are not among them.
        local bucket = {
            key = key, kind = kind, quota = quota, found = false, dirty = false, gone = 0,
            at = 0, part = 0, over = 1, ahead = 0, capacity = 0, fill = 0,
        }
        local text = pcall('HGET', key, quota)
        local at = tonumber(text)
        if at and at >= 0 and at <= TIME_MAX and ceil(at) == at then -- as nearly always
            bucket.found, bucket.at, bucket.gone = true, at, half(at)
            return bucket
        end
        local state = kind.parse(text) or find_own(kind, bucket)
        if state then
            bucket.found, bucket.at, bucket.part, bucket.over = true, state.at, state.part, state.over
        end
        bucket.gone = half(bucket.at)
        return bucket
    end

    -- When a bucket will be full, seen from now, with so much more to earn.
    function kind.after(bucket, earn, earn_part)
        local at, part = bucket.at, bucket.part
        if at < now then
            return now + earn, earn_part
        end
        at, part = at + earn, part + earn_part
        if part >= bucket.over then
            return at + 1, part - bucket.over
        end
        return at, part
    end

    -- No moment lies later than two refills from now, or than the end of time. Tells whether this one did.
    local function no_deeper(at, part, over, fill, fill_part)
        local deepest, deepest_part = now + 2 * fill, 2 * fill_part
        if deepest_part >= over then
            deepest, deepest_part = deepest + 1, deepest_part - over
        end
        if deepest >= TIME_MAX then
            deepest, deepest_part = TIME_MAX, 0
        end
        if at > deepest or at == deepest and part > deepest_part then
            return deepest, deepest_part, true
        end
        return at, part, false
    end

    function kind.weigh(bucket, cost, capacity, over, earn, earn_part, fill, fill_part)
        if bucket.over ~= over then
            if bucket.part > 0 then
                bucket.at, bucket.part = bucket.at + 1, 0
            end
            bucket.over = over
        elseif bucket.part >= over then
            bucket.at, bucket.part = bucket.at + 1, 0
        end
        local latest, latest_part = now + fill, fill_part
        if latest >= TIME_MAX then
            latest, latest_part = TIME_MAX, 0
        end
        if bucket.at >= latest then
            local mended
            bucket.at, bucket.part, mended = no_deeper(bucket.at, bucket.part, over, fill, fill_part)
            if mended then
                bucket.must_write = true
            end
        end
        bucket.capacity, bucket.fill = capacity, fill + fill_part / over
        if bucket.ahead > 0 then
            earn, earn_part = earn + bucket.ahead_earn, earn_part + bucket.ahead_part
            if earn_part >= over then
                earn, earn_part = earn + 1, earn_part - over
            end
        end
        local at, part = kind.after(bucket, earn, earn_part)
        local fits = at < latest or at == latest and part <= latest_part
        return fits, bucket.at, bucket.part, over, 0
    end

    -- Notes what a charge of the same decision takes before the next is weighed.
    function kind.claim(bucket, cost, capacity, over, earn, earn_part)
        earn, earn_part = (bucket.ahead_earn or 0) + earn, (bucket.ahead_part or 0) + earn_part
        if earn_part >= over then
            earn, earn_part = earn + 1, earn_part - over
        end
        bucket.ahead_earn, bucket.ahead_part = earn, earn_part
    end

    function kind.spend(bucket, cost, capacity, over, earn, earn_part, fill, fill_part)
        local at, part = kind.after(bucket, earn, earn_part)
        if at >= now + fill or at >= TIME_MAX then
            at, part = no_deeper(at, part, over, fill, fill_part)
        end
        bucket.at, bucket.part = at, part
    end

    function kind.refund(bucket, cost, capacity, over, earn, earn_part, fill, fill_part, paid_at)
        local at, part = kind.after(bucket, 0, 0)
        bucket.at, bucket.part = at, part
        local latest, latest_part = now + fill, fill_part
        if latest >= TIME_MAX then
            latest, latest_part = TIME_MAX, 0
        end
        local unpaid = earn - (now - paid_at)
        if latest < at or latest == at and latest_part < part or now < paid_at or unpaid < 0 then
            return
        end
        at, part = at - unpaid, part - earn_part
        if part < 0 then
            at, part = at - 1, part + over
        end
        if at < now then
            at, part = now, 0
        end
        bucket.at, bucket.part = at, part
    end

    function kind.gone_at(bucket)
        return bucket.at
    end

    function kind.write(bucket)
        local full_at = bucket.part > 0 and format('%d %d/%d', bucket.at, bucket.part, bucket.over) or format('%d', bucket.at)
        if readable == 1 then
            local tokens = format('%.3f', bucket.capacity * (1 - (bucket.at - now) / bucket.fill))
            call('HSET', bucket.key, bucket.quota, full_at, 'tokens', tokens, 'lastRefill', stamp)
        else
            call('HSET', bucket.key, bucket.quota, full_at)
        end
    end

    return kind
end

-- ═══ leaky bucket as a queue ═══
-- A token bucket whose charges fit only if their turn comes before the asker's patience ends.

local function queue()
    local kind = token_bucket()
    local weigh = kind.weigh

    function kind.weigh(bucket, cost, capacity, over, earn, earn_part, fill, fill_part, patience)
        local fits, at, part, over, none = weigh(bucket, cost, capacity, over, earn, earn_part, fill, fill_part)
        local turn, turn_part = kind.after(bucket, bucket.ahead_earn or 0, bucket.ahead_part or 0)
        local is_patient = turn < now + patience or turn == now + patience and turn_part == 0
        return fits and is_patient, at, part, over, none
    end

    return kind
end

-- ═══ buckets that begin at some time and count since ═══
-- at: when it began. a, b: what it counted. The kinds differ in their fields, and in what is left of a count now.

-- Pulls a beginning back to now that lies more than a window ahead.
local function pull_back(bucket, window)
    if now + window < bucket.at then
        bucket.at, bucket.must_write = now, true
    end
end

-- Takes the units of a charge back from a count, if it was paid in the window that began at `at`.
local function uncount(spent, at, cost, capacity, window, paid_at)
    if capacity < spent or now < paid_at or paid_at < at or window <= paid_at - at then
        return spent
    end
    return max(spent - cost, 0)
end

-- Token bucket, refilled in steps. at: the last step, or the charge that found the bucket full. a: units that have
-- not come back yet.
local function stepped()
    local kind = { field = 'spent of ' }

    function kind.gone_at(bucket)
        return bucket.at + ceil(bucket.a / bucket.units) * bucket.window
    end

    function kind.parse(text)
        local spent, since = (type(text) == 'string' and text or ''):match('^(%S+) since (%S+)$')
        local at, a = whole(since), count(spent)
        return at and a and { at = at, a = a }
    end

    local function law(quota)
        local capacity, units, window = quota:match(' of (%d+) (%d+)/(%d+)$')
        return tonumber(capacity) or 1, tonumber(units) or 1, tonumber(window) or 1
    end

    function kind.ends_at(state, quota)
        local _, units, window = law(quota)
        return min(state.at + ceil(state.a / units) * window, TIME_MAX)
    end

    -- The same share of the quota is spent, in whole units. The steps begin now.
    function kind.inherit(state, writer, quota)
        local whole_of, units, window = law(writer)
        local capacity = law(quota)
        local _, spent = kind.settled(state, units, window)
        spent = share(min(spent, 2 * whole_of, 4294967295), capacity, whole_of)
        return { at = now, a = min(spent, 2 * capacity, 4294967295) }
    end

    function kind.load(key, quota)
        local bucket = { key = key, kind = kind, quota = quota, found = false, at = 0, a = 0, ahead = 0 }
        local state = kind.parse(pcall('HGET', key, quota)) or find_own(kind, bucket)
        if state then
            bucket.found, bucket.at, bucket.a = true, state.at, state.a
        end
        -- How long it lives was set under a window that may have been another one.
        bucket.gone = -1
        return bucket
    end

    -- The last step and the units that are spent, with all steps taken that are due.
    local function settled(bucket, units, window)
        local passed = max(now - bucket.at, 0)
        local steps = (passed - passed % window) / window
        local spent = max(bucket.a - steps * units, 0)
        if spent == 0 then
            return now, 0
        end
        return bucket.at + steps * window, spent
    end
    kind.settled = settled

    function kind.weigh(bucket, cost, capacity, over, units, _, window)
        pull_back(bucket, window)
        bucket.units, bucket.window = units, window
        local _, spent = settled(bucket, units, window)
        return spent + bucket.ahead + cost <= capacity, bucket.at, bucket.a, 0, 0
    end

    function kind.spend(bucket, cost, capacity, over, units, _, window)
        local since, spent = settled(bucket, units, window)
        bucket.at, bucket.a = since, spent + counted(spent, cost, capacity)
    end

    function kind.refund(bucket, cost, capacity, over, units, _, window, _, paid_at)
        local since, spent = settled(bucket, units, window)
        bucket.at, bucket.a = since, spent
        if spent <= capacity and paid_at <= now then
            local repaid = ceil(max(since - paid_at, 0) / window) * units
            bucket.a = max(spent - max(cost - repaid, 0), 0)
        end
    end

    function kind.write(bucket)
        call('HSET', bucket.key, bucket.quota, format('%d since %d', bucket.a, bucket.at))
    end

    return kind
end

-- Sliding window counter. a, b: units spent in the window before it, and in it. A weight is units times ticks.
local function counter()
    local kind = {}

    local function gone_at(at, previous, current, window)
        return at + (current > 0 and 2 or previous > 0 and 1 or 0) * window
    end

    function kind.gone_at(bucket)
        return gone_at(bucket.at, bucket.a, bucket.b, bucket.window)
    end

    function kind.load(key, _, cost, capacity, over, tick, _, window)
        local state = pcall('HMGET', key, 'window', 'opened_at', 'previous', 'current')
        local at, a, b = whole(state[2]), count(state[3]), count(state[4])
        local found = tonumber(state[1]) == window and at and a and b and true
        if not found then
            at, a, b = 0, 0, 0
        end
        return { key = key, kind = kind, found = found, gone = half(gone_at(at, a, b, window)), at = at, a = a, b = b, ahead = 0 }
    end

    local function settled(bucket, window)
        local next_at = bucket.at + window
        if now < next_at then
            return bucket.at, bucket.a, bucket.b
        elseif now < next_at + window then
            return next_at, bucket.b, 0
        end
        return now - now % window, 0, 0
    end

    function kind.weigh(bucket, cost, capacity, over, tick, _, window, _, ticks)
        pull_back(bucket, window)
        bucket.window = window
        local at, previous, current = settled(bucket, window)
        local passed = max(now - at, 0)
        local elapsed = (passed - passed % tick) / tick
        local weight = previous * max(ticks - elapsed, 0) + current * ticks
        return weight <= (capacity - bucket.ahead - cost) * ticks, bucket.at, bucket.a, bucket.b, 0
    end

    function kind.spend(bucket, cost, capacity, over, tick, _, window)
        local at, previous, current = settled(bucket, window)
        bucket.at, bucket.a, bucket.b = at, previous, current + counted(current, cost, capacity)
    end

    function kind.refund(bucket, cost, capacity, over, tick, _, window, _, paid_at)
        local at, previous, current = settled(bucket, window)
        bucket.at, bucket.a, bucket.b = at, previous, uncount(current, at, cost, capacity, window, paid_at)
    end

    function kind.write(bucket)
        call('HSET', bucket.key, 'window', bucket.window, 'opened_at', format('%d', bucket.at),
            'previous', bucket.a, 'current', bucket.b)
    end

    return kind
end

-- Fixed window. a: units spent in it.
local function fixed_window()
    local kind = {}

    local function gone_at(at, spent, window)
        return at + (spent > 0 and 1 or 0) * window
    end

    function kind.gone_at(bucket)
        return gone_at(bucket.at, bucket.a, bucket.window)
    end

    function kind.load(key, _, cost, capacity, over, units, _, window)
        local state = pcall('HMGET', key, 'window', 'opened_at', 'count')
        local at, a = whole(state[2]), count(state[3])
        local found = tonumber(state[1]) == window and at and a and true
        if not found then
            at, a = 0, 0
        end
        return { key = key, kind = kind, found = found, gone = half(gone_at(at, a, window)), at = at, a = a, ahead = 0 }
    end

    local function settled(bucket, window, from_first_hit)
        local opening = from_first_hit == 1 and now or now - now % window
        local ends_at = bucket.at + window
        if bucket.a == 0 then
            return opening, 0
        elseif now < ends_at then
            return bucket.at, bucket.a
        end
        return max(opening, ends_at), 0
    end

    function kind.weigh(bucket, cost, capacity, over, units, _, window, _, from_first_hit)
        pull_back(bucket, window)
        bucket.window = window
        local _, spent = settled(bucket, window, from_first_hit)
        return spent + bucket.ahead + cost <= capacity, bucket.at, bucket.a, 0, 0
    end

    function kind.spend(bucket, cost, capacity, over, units, _, window, _, from_first_hit)
        local at, spent = settled(bucket, window, from_first_hit)
        bucket.at, bucket.a = at, spent + counted(spent, cost, capacity)
    end

    function kind.refund(bucket, cost, capacity, over, units, _, window, _, paid_at)
        local at, spent = settled(bucket, window)
        bucket.at, bucket.a = at, uncount(spent, at, cost, capacity, window, paid_at)
    end

    function kind.write(bucket)
        call('HSET', bucket.key, 'window', bucket.window, 'opened_at', format('%d', bucket.at), 'count', bucket.a)
    end

    return kind
end

-- ═══ sliding window log ═══
-- A list: how many units its charges have together, then the charges in chunks of at most 64, each with its sum in front.
-- A log of 20,000 charges is 313 chunks. What leaves the window, what must be waited for and what lies ahead is found by
-- the sums, from the nearer end; charges are read one by one in a single chunk only. All is written at the end.
-- In the reply a log is: how long until the charge fits (0 now, -1 never), the units that were counted, the units that
-- then are spent, and the oldest charge that counts (-1 if none).
--   lo, hi      the first and the last chunk, by their place in the list
--   n_listed    the last place in the list; n_kept, the last one whose chunk is still there
--   chunks      those that were read or changed, by their place
--   left        units spent

local function log()
    local kind = { is_list = true }
    local CHUNK, PAGE = 64, 16

    local function entry_text(chunk, at, cost)
        return cost == 1 and format(' %d', at - chunk.since) or format(' %d*%d', at - chunk.since, cost)
    end

    -- The charges of a chunk.
    local function body_of(chunk)
        local body = chunk.body or chunk.text:sub(chunk.from)
        chunk.body = body
        return body
    end

    -- The charge at a place in a chunk's text, and the place of the next.
    local function entry_at(chunk, place)
        local at, cost, next_place = body_of(chunk):match('^ (%d+)%*?(%d*)()', place)
        if at then
            return chunk.since + whole(at), cost == '' and 1 or count(cost), next_place
        end
    end

    -- One that makes no sense has left every window.
    local function chunk_of(text)
        local newest, units, n, since, from = text:match('^(%d+) (%d+) (%d+) (%d+):()')
        if not newest then
            return { newest = 0, units = 0, n = 0, since = 0, body = '' }
        end
        return {
            newest = whole(newest), units = count(units), n = count(n), since = whole(since), text = text, from = from,
        }
    end

    local function chunk_text(chunk)
        return format('%d %d %d %d:', chunk.newest, chunk.units, chunk.n, chunk.since) .. body_of(chunk)
    end

    -- Reads the chunk at a place, as it is written. With a step a page at once, for who goes on from there.
    local function fetch(bucket, i, step)
        local from = step == -1 and max(i - PAGE + 1, bucket.lo) or i
        local to = step == 1 and min(i + PAGE - 1, bucket.n_kept) or i
        local page = call('LRANGE', bucket.key, from, to)
        for j = 1, #page do
            local place = from + j - 1
            bucket.chunks[place] = bucket.chunks[place] or page[j]
        end
        return bucket.chunks[i]
    end

    local function chunk_at(bucket, i)
        local chunk = bucket.chunks[i] or fetch(bucket, i)
        if type(chunk) == 'string' then
            chunk = chunk_of(chunk)
            bucket.chunks[i] = chunk
        end
        return chunk
    end

    -- The units of a chunk. Of most chunks nothing else is read.
    local function units_at(bucket, i, step)
        local chunk = bucket.chunks[i] or fetch(bucket, i, step)
        if type(chunk) == 'string' then
            return count(chunk:match('^%d+ (%d+) %d+ %d+:')) or 0
        end
        return chunk.units
    end

    -- The first chunk whose newest charge was made after that.
    local function first_after(bucket, at)
        local low, high = bucket.lo, bucket.hi + 1
        while low < high do
            local middle = (low + high - (low + high) % 2) / 2
            if at < chunk_at(bucket, middle).newest then
                high = middle
            else
                low = middle + 1
            end
        end
        return low
    end

    -- The units of all chunks before that one.
    local function units_before(bucket, i)
        local units = 0
        if i - bucket.lo <= bucket.hi - i then
            for j = bucket.lo, i - 1 do
                units = units + units_at(bucket, j, 1)
            end
            return units
        end
        for j = bucket.hi, i, -1 do
            units = units + units_at(bucket, j, -1)
        end
        return max(bucket.left - units, 0)
    end

    local function note(bucket, i)
        bucket.changed[i], bucket.must_write = true, true
    end

    local function read(bucket)
        bucket.lo, bucket.hi, bucket.left, bucket.deepest, bucket.found = 1, 0, 0, 0, nil
        bucket.chunks, bucket.changed, bucket.n_listed = {}, {}, 0
        local first = pcall('LRANGE', bucket.key, 0, 1)
        local spent, deepest = (first[1] or ''):match('^(%d+) (%d+)$')
        if spent then
            bucket.found, bucket.left, bucket.deepest = true, whole(spent), whole(deepest)
            bucket.n_listed = call('LLEN', bucket.key) - 1
            bucket.hi = bucket.n_listed
            bucket.chunks[1] = first[2]
        end
        bucket.n_kept = bucket.n_listed
    end

    function kind.gone_at(bucket)
        return (bucket.lo <= bucket.hi and chunk_at(bucket, bucket.hi).newest or now) + bucket.window
    end

    function kind.load(key, _, cost, capacity, over, units, _, window)
        local bucket = { key = key, kind = kind, ahead = 0, window = window }
        read(bucket)
        bucket.gone = half(kind.gone_at(bucket))
        return bucket
    end

    -- All that lies ahead of now was charged now.
    local function mend(bucket)
        local i = first_after(bucket, now)
        local chunk, before = chunk_at(bucket, i), units_before(bucket, i)
        local n, units, kept, place = 0, 0, 1, 1
        local at, cost, next_place = entry_at(chunk, 1)
        local same = 0 -- what was charged at this very instant
        while at and at <= now do
            n, units = n + 1, units + cost
            kept, same, place = place, at == now and cost or 0, next_place
            at, cost, next_place = entry_at(chunk, place)
        end
        if same > 0 then
            n, place = n - 1, kept
        end
        local ahead = max(bucket.left - before - units, 0)
        chunk.since = n > 0 and chunk.since or now
        chunk.body = body_of(chunk):sub(1, place - 1) .. entry_text(chunk, now, same + ahead)
        chunk.newest, chunk.units, chunk.n = now, units + ahead, n + 1
        bucket.hi, bucket.n_kept = i, min(bucket.n_kept, i)
        note(bucket, i)
    end

    -- Lets the first charges of a chunk go, up to a place in its text.
    local function cut(bucket, chunk, place, n, units)
        chunk.body, chunk.n, chunk.units = body_of(chunk):sub(place), max(chunk.n - n, 0), max(chunk.units - units, 0)
        bucket.left = max(bucket.left - units, 0)
        note(bucket, bucket.lo)
    end

    local function forget_chunks_before(bucket, i)
        bucket.left = i <= bucket.hi and max(bucket.left - units_before(bucket, i), 0) or 0
        bucket.lo, bucket.must_write = i, true
    end

    -- Lets go of charges that have left the window: they have left for good.
    local function leave(bucket, window)
        local last_gone = now - window
        if chunk_at(bucket, bucket.hi).newest <= last_gone then
            return forget_chunks_before(bucket, bucket.hi + 1)
        elseif chunk_at(bucket, bucket.lo).newest <= last_gone then
            forget_chunks_before(bucket, first_after(bucket, last_gone))
        end
        local chunk = chunk_at(bucket, bucket.lo)
        local place, n, units = 1, 0, 0
        local at, cost, next_place = entry_at(chunk, place)
        while at and at <= last_gone do
            place, n, units = next_place, n + 1, units + cost
            at, cost, next_place = entry_at(chunk, place)
        end
        if n > 0 then
            cut(bucket, chunk, place, n, units)
        end
    end

    local function settle(bucket, window)
        if bucket.lo <= bucket.hi then
            if now + window < chunk_at(bucket, bucket.hi).newest then
                mend(bucket)
            end
            leave(bucket, window)
        end
        bucket.oldest_at = bucket.lo <= bucket.hi and entry_at(chunk_at(bucket, bucket.lo), 1) or -1
    end

    -- When the charge leaves with which so many units have left.
    local function left_at(bucket, missing)
        local i
        if 2 * missing <= bucket.left then
            i = bucket.lo
            local units = units_at(bucket, i, 1)
            while i < bucket.hi and units < missing do
                missing, i = missing - units, i + 1
                units = units_at(bucket, i, 1)
            end
        else
            local stay = bucket.left - missing
            i = bucket.hi
            local units = units_at(bucket, i, -1)
            while i > bucket.lo and units <= stay do
                stay, i = stay - units, i - 1
                units = units_at(bucket, i, -1)
            end
            missing = units - stay
        end
        local chunk, place, last = chunk_at(bucket, i), 1, now
        while missing > 0 do
            local at, cost, next_place = entry_at(chunk, place)
            if not at then
                break
            end
            last, missing, place = at, missing - cost, next_place
        end
        return last
    end

    function kind.weigh(bucket, cost, capacity, over, units, _, window)
        settle(bucket, window)
        local wanted = bucket.ahead + cost
        local missing = bucket.left + wanted - capacity
        if missing <= 0 then
            return true, 0, 0, bucket.left, bucket.oldest_at
        elseif wanted > capacity or bucket.act == 4 or bucket.hi < bucket.lo then
            return false, -1, 0, bucket.left, bucket.oldest_at
        end
        return false, max(left_at(bucket, missing) - now + window, 1), 0, bucket.left, bucket.oldest_at
    end

    -- While the newer ones are two limits deep by themselves, the oldest says nothing.
    local function shorten(bucket)
        local lo, left = bucket.lo, bucket.left
        local units = units_at(bucket, lo, 1)
        while lo < bucket.hi and left - units >= bucket.deepest do
            lo, left = lo + 1, left - units
            units = units_at(bucket, lo, 1)
        end
        if lo > bucket.lo then
            bucket.lo, bucket.left, bucket.must_write = lo, left, true
        end
        local chunk, place, n = chunk_at(bucket, lo), 1, 0
        units = 0
        local _, cost, next_place = entry_at(chunk, place)
        while cost and n + 1 < chunk.n and left - units - cost >= bucket.deepest do
            place, n, units = next_place, n + 1, units + cost
            _, cost, next_place = entry_at(chunk, place)
        end
        if n > 0 then
            cut(bucket, chunk, place, n, units)
        end
    end

    function kind.spend(bucket, cost, capacity)
        if cost == 0 then
            return 0 -- it stands as it did
        end
        local was_empty = bucket.hi < bucket.lo
        local chunk = not was_empty and chunk_at(bucket, bucket.hi)
        if chunk and now <= chunk.newest then
            -- Charges of one instant share their entry, and so does one by a clock that is behind.
            local place, spent = body_of(chunk):match('() %d+%*?(%d*)$')
            spent = count(spent) or 1
            cost = counted(spent, cost, capacity)
            chunk.body = chunk.body:sub(1, (place or 1) - 1) .. entry_text(chunk, chunk.newest, spent + cost)
        else
            cost = counted(0, cost, capacity)
            if not chunk or chunk.n >= CHUNK then
                chunk = { units = 0, n = 0, since = now, body = '' }
                bucket.hi = bucket.hi + 1
                bucket.chunks[bucket.hi] = chunk
            end
            chunk.newest, chunk.n, chunk.body = now, chunk.n + 1, body_of(chunk) .. entry_text(chunk, now, cost)
        end
        chunk.units = chunk.units + cost
        note(bucket, bucket.hi)
        -- The largest quota decides how much is kept.
        bucket.deepest = max(was_empty and 0 or bucket.deepest, min(2 * capacity, 4294967295))
        bucket.left = bucket.left + cost
        shorten(bucket)
        bucket.oldest_at = entry_at(chunk_at(bucket, bucket.lo), 1) or -1
        return cost
    end

    function kind.write(bucket)
        local key = bucket.key
        if bucket.hi < bucket.lo then
            return call('DEL', key)
        end
        if not bucket.found then
            call('RPUSH', key, '')
        elseif bucket.n_kept < bucket.n_listed then
            call('LTRIM', key, 0, bucket.n_kept)
        end
        for i in pairs(bucket.changed) do
            if i <= bucket.n_kept and i >= bucket.lo then
                call('LSET', key, i, chunk_text(bucket.chunks[i]))
            end
        end
        for i = bucket.n_kept + 1, bucket.hi do
            call('RPUSH', key, chunk_text(bucket.chunks[i]))
        end
        -- The chunk before the first makes place for the units spent.
        if bucket.lo > 1 then
            call('LTRIM', key, bucket.lo - 1, -1)
        end
        call('LSET', key, 0, format('%d %d', bucket.left, bucket.deepest))
    end

    -- Takes a chunk out of the middle, after all else was written.
    local function remove(bucket, i)
        i = i - bucket.lo + 1
        kind.write(bucket)
        call('LSET', bucket.key, i, 'gone')
        call('LREM', bucket.key, 1, 'gone')
        read(bucket)
    end

    -- Makes one chunk of two neighbours, if it has room. So two neighbours always are more than one full chunk.
    local function join(bucket, i)
        if i < bucket.lo or bucket.hi <= i then
            return false
        end
        local chunk, other = chunk_at(bucket, i), chunk_at(bucket, i + 1)
        if chunk.n + other.n > CHUNK then
            return false
        end
        chunk.newest, chunk.units = other.newest, chunk.units + other.units
        local texts = { body_of(chunk) }
        local at, cost, next_place = entry_at(other, 1)
        while at do
            texts[#texts + 1] = entry_text(chunk, at, cost)
            at, cost, next_place = entry_at(other, next_place)
        end
        chunk.n, chunk.body = chunk.n + other.n, table.concat(texts)
        note(bucket, i)
        remove(bucket, i + 1)
        return true
    end

    function kind.refund(bucket, cost, capacity, over, units, _, window, _, paid_at)
        local i = first_after(bucket, paid_at - 1)
        if bucket.hi < i or capacity < bucket.left or now < paid_at then
            return
        end
        local chunk, place, before = chunk_at(bucket, i), 1, nil
        local at, spent, next_place = entry_at(chunk, place)
        while at and at < paid_at do
            before, place = at, next_place
            at, spent, next_place = entry_at(chunk, place)
        end
        if at ~= paid_at then
            return
        end
        local back = min(spent, cost)
        local rest = back < spent and entry_text(chunk, at, spent - back) or ''
        chunk.body = chunk.body:sub(1, place - 1) .. rest .. chunk.body:sub(next_place)
        chunk.units, bucket.left = max(chunk.units - back, 0), max(bucket.left - back, 0)
        note(bucket, i)
        if rest == '' then
            chunk.n = max(chunk.n - 1, 0)
            chunk.newest = at == chunk.newest and before or chunk.newest
            if chunk.body == '' then
                if i == bucket.lo then
                    bucket.lo = i + 1
                elseif i == bucket.hi then
                    bucket.hi, bucket.n_kept = i - 1, min(bucket.n_kept, i - 1)
                else
                    remove(bucket, i)
                end
            else
                local _ = join(bucket, i) or join(bucket, i - 1)
            end
        end
    end

    return kind
end

-- ═══ decisions ═══

local makers, kinds = { token_bucket, queue, stepped, counter, fixed_window, log }, {}
local buckets, order, n_buckets = {}, {}, 0
local reply, n_reply, n_keys = { now }, 1, 0

-- True if Redis has shown a later time before. clock_setback.rs has the same tolerance.
local is_set_back = now + 100000 < latest

-- What the reply says of a log is how it stands after the charge.
local function correct(bucket, at_state, cost)
    reply[at_state + 2], reply[at_state + 3], reply[at_state + 4] = cost, bucket.left, bucket.oldest_at
end

-- Gives back, where something was paid under this quota. Not if the clock was set back since: it shows less time than has
-- passed, so nobody can say what time has repaid. Tells whether it did.
local function refund(bucket, ...)
    if bucket.inherits or is_set_back then
        return 0
    end
    bucket.kind.refund(bucket, ...)
    bucket.dirty = bucket.dirty or bucket.found
    return 1
end

-- Marks a receipt as used, for as long as it could give something back. Tells whether it was not before.
local function use(mark, id, cost, units, window)
    local lasts = id == 3 and (ceil(cost / units) + 1) * window or 2 * window
    return call('SET', mark, 1, 'NX', 'PX', format('%d', ceil(min(lasts, TIME_MAX) / 1000) + 1000))
end

-- Writes a bucket that was changed.
local function write(bucket)
    local kind = bucket.kind
    local gone_at = kind.gone_at(bucket)
    -- A key may hold the states of other quotas, which may last longer.
    local not_shorter = kind.field and (bucket.found or bucket.has_others)
    if bucket.dirty and kind.write then
        if bucket.is_shared and kind.field then
            gone_at, not_shorter = max(gone_at, park(kind, bucket)), false
        elseif not bucket.found and not bucket.is_open then
            call('DEL', bucket.key) -- what may be there is of another kind
        end
        kind.write(bucket)
        if bucket.is_shared or not bucket.found or min_ttl > 0 or half(gone_at) ~= bucket.gone then
            renew(bucket.key, gone_at, not_shorter)
        end
    elseif bucket.found and min_ttl > 0 and bucket.is_charged then
        renew(bucket.key, gone_at, not_shorter)
    end
    bucket.dirty = false
end

while position <= #frame do
    local n, vetoed, only_weighs, charges, is_refund, n_refunded = 0, false, false, nil, false, 0
    local has_joined = false
    n_reply = n_reply + 1
    local at_reply = n_reply

    -- Weigh each.
    repeat
        local id, left, act, cost, capacity, over, p, p_part, q, q_part, r, quota
        id, left, act, cost, capacity, over, p, p_part, q, q_part, r, quota, position =
            struct.unpack('<BHBI4I4I4I8I4I8I4I8Bc0', frame, position)
        n, n_keys = n + 1, n_keys + 1
        local key = KEYS[n_keys]
        local meets_again = act >= 128 -- another charge of the decision has the same key
        if meets_again then
            act = act - 128
        end
        if act >= 64 then
            act, only_weighs = act - 64, true
        end
        is_refund = is_refund or act % 32 == 4
        local is_used = false
        if act >= 32 then
            act, n_keys = act - 32, n_keys + 1
            is_used = not use(KEYS[n_keys], id, cost, p, q)
        end
        local joins = act >= 16
        if joins then
            act, has_joined = act - 16, true
        end

        local kind = kinds[id]
        if not kind then
            kind = makers[id]()
            kinds[id] = kind
        end
        local bucket = buckets[key]
        while bucket and (bucket.kind ~= kind or bucket.quota ~= quota) do
            bucket = bucket.before
        end
        if not bucket then
            local before = buckets[key]
            local other = before
            while other do
                write(other) -- what an earlier decision of this call spent; of this one nothing is spent yet
                other.is_shared, other.fields = true, nil
                other = other.before
            end
            bucket = kind.load(key, quota, cost, capacity, over, p, p_part, q, q_part, r)
            bucket.quota = quota
            if before then
                bucket.is_shared, bucket.fields, bucket.before = true, nil, before
            end
            n_buckets = n_buckets + 1
            buckets[key], order[n_buckets] = bucket, bucket
        end

        if kind.is_list then
            bucket.act = act
        end
        local fits, a, b, c, d = kind.weigh(bucket, cost, capacity, over, p, p_part, q, q_part, r)
        if act ~= 3 then
            if min_ttl > 0 then
                bucket.is_charged = true
            end
            if bucket.must_write and not (act == 4 and (bucket.inherits or is_set_back)) then
                bucket.dirty = true
            end
        end
        fits = cost == 0 or fits and bucket.ahead + cost <= capacity
        local spends = act == 2 or fits and act < 2
        vetoed = vetoed or not fits and (act == 0 or act == 3)
        local at_state = n_reply
        if act < 4 then
            reply[n_reply + 1], reply[n_reply + 2], reply[n_reply + 3], reply[n_reply + 4] = a, b, c, d
            n_reply = n_reply + 4
        end

        if n == 1 and left == 0 then
            -- The only one: nobody else can veto.
            if act == 4 then
                n_refunded = n_refunded + (is_used and 0 or refund(bucket, cost, capacity, over, p, p_part, q, q_part, r))
            elseif spends and not vetoed and not only_weighs then
                local cost = kind.spend(bucket, cost, capacity, over, p, p_part, q, q_part, r)
                bucket.dirty = true
                if cost then
                    correct(bucket, at_state, cost)
                end
            end
        else
            charges = charges or {}
            act = is_used and 5 or act
            charges[n] = { kind, bucket, act, spends, at_state, cost, capacity, over, p, p_part, q, q_part, r }
            charges[n].joins = joins
            -- The next of the same key must leave room. A take that is short claims its units too.
            if meets_again and (act == 0 or act == 2 or act == 1 and fits) then
                if kind.claim then
                    kind.claim(bucket, cost, capacity, over, p, p_part)
                end
                bucket.ahead = bucket.ahead + cost
            end
        end
    until left == 0

    -- Those that join spend together, or not at all.
    local first = 1
    for i = 2, has_joined and n + 1 or 0 do
        if i > n or not charges[i].joins then
            local all = true
            for j = first, i - 1 do
                all = all and charges[j][4]
            end
            for j = first, i - 1 do
                charges[j][4] = all
            end
            first = i
        end
    end

    -- Spend all, or none.
    for i = 1, charges and n or 0 do
        local charge = charges[i]
        local kind, bucket, act, spends, at_state = charge[1], charge[2], charge[3], charge[4], charge[5]
        if bucket.ahead > 0 then
            bucket.ahead, bucket.ahead_earn, bucket.ahead_part = 0, 0, 0
        end
        if act == 4 then
            n_refunded = n_refunded + refund(bucket, unpack(charge, 6))
        elseif act < 4 then
            spends = spends and not vetoed and not only_weighs
            local cost = spends and kind.spend(bucket, unpack(charge, 6))
            bucket.dirty = bucket.dirty or spends
            if kind.is_list then
                correct(bucket, at_state, cost or 0)
            end
        end
    end
    reply[at_reply] = is_refund and n_refunded or vetoed and 0 or 1
end

for i = 1, n_buckets do
    write(order[i])
end

return reply
