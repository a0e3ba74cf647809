#!lua
--[[ Applies charges to buckets, in one step.

Redis runs one script at a time. What is read here is still true when it is written, so two instances that ask
at the same moment cannot both be given the last unit.

    KEYS     ratelimit:login:10.0.0.1   ratelimit:all   …          one for each charge
    ARGV[1]  │ header │ charge │ charge │ charge │ …               packed, see frame.rs
                      └─ one decision ──┘└─ the next …
    reply    now,  paid, state, state,  paid, state, …             a state is four numbers

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

Each kind of bucket below is the twin of a file in tollgate-core/src/algorithm, which says what it means.

    kind        key is a   holds
    1 token     hash       full_at: "MICROS", or "MICROS PART/OVER" with a fraction
    2 queue     hash       the same
    3 stepped   hash       since, spent
    4 counter   hash       window, opened_at, previous, current
    5 fixed     hash       window, opened_at, count
    6 log       list       units spent, then each charge, oldest first: "MICROS", or "MICROS COST"

Numbers are whole and below 2^53, where a double is exact. `redis.call` writes numbers with all their digits; `..`
and `tostring` would keep 14. A state of another kind, or one that somebody tampered with, reads as never seen.

The clock may be set back. A state that lies further ahead than it ever could is mended: pulled back, and written
even if the charge is denied, or its key would be shut out until the clock has caught up. --]]

local call, pcall, format = redis.call, redis.pcall, string.format
local ceil, max, min = math.ceil, math.max, math.min

local frame = ARGV[1]
local min_ttl, readable, position = struct.unpack('<I8B', frame)

local now = tonumber(ARGV[2]) -- tests bring their own time
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end

-- A whole number from 0 up, or nothing.
local function whole(text)
    local number = tonumber(text)
    return number and number >= 0 and min(ceil(number), 9007199254740991) or nil
end

-- A number of units.
local function count(text)
    local number = whole(text)
    return number and min(number, 4294967295)
end

-- Lets a key live one second longer than it means something.
local function renew(key, gone_at)
    local left = min(max(gone_at - now, 0), 9007199254740991)
    call('PEXPIRE', key, max(ceil(left / 1000) + 1000, min_ttl))
end

-- How many of `cost` units may be added to a count: none gets deeper than two capacities.
local function counted(count, charge)
    return min(max(min(2 * charge.capacity, 4294967295) - count, 0), charge.cost)
end

-- Pulls a beginning back to now that lies more than a window ahead.
local function pull_back(bucket, window)
    if now + window < bucket.at then
        bucket.at, bucket.dirty = now, true
    end
end

-- True if a refund must give nothing back.
local function forfeits(spent, charge)
    return charge.capacity < spent or now < charge.paid_at
end

-- ═══ token bucket, and leaky bucket as a meter ═══
-- at, part/over: when it will be full again.

local token = {}

function token.load(bucket)
    local text = pcall('HGET', bucket.key, 'full_at')
    if type(text) ~= 'string' then
        return
    end
    local at, part, over = tonumber(text), 0, 1
    if not at then
        at, part, over = text:match('^(%d+) (%d+)/(%d+)$')
        part, over = count(part), count(over)
    end
    at = whole(at)
    if at then
        bucket.at, bucket.part, bucket.over, bucket.found = at, part, over, true
    end
end

-- Counts fractions over the charge's own denominator, and mends.
function token.prepare(bucket, charge)
    if bucket.part > 0 and (bucket.over ~= charge.over or bucket.over <= bucket.part) then
        bucket.at, bucket.part = bucket.at + 1, 0
    end
    bucket.over = charge.over
    local deepest, deepest_part = now + 2 * charge.fill, 2 * charge.fill_part
    if deepest_part >= charge.over then
        deepest, deepest_part = deepest + 1, deepest_part - charge.over
    end
    if bucket.at > deepest or bucket.at == deepest and bucket.part > deepest_part then
        bucket.at, bucket.part, bucket.dirty = deepest, deepest_part, true
    end
    bucket.deepest, bucket.deepest_part = deepest, deepest_part
end

function token.state(bucket)
    return bucket.at, bucket.part, bucket.over, 0
end

-- When it would be full if `earn` were added to what is spent and claimed.
function token.after(bucket, earn, earn_part)
    local at, part = bucket.at, bucket.part
    if at < now then
        at, part = now, 0
    end
    at, part = at + earn, part + earn_part
    if part >= bucket.over then
        at, part = at + 1, part - bucket.over
    end
    return at, part
end

function token.fits(bucket, charge)
    local earn, earn_part = bucket.ahead_earn + charge.earn, bucket.ahead_part + charge.earn_part
    if earn_part >= bucket.over then
        earn, earn_part = earn + 1, earn_part - bucket.over
    end
    local at, part = token.after(bucket, earn, earn_part)
    local latest = now + charge.fill
    return at < latest or at == latest and part <= charge.fill_part
end

function token.claim(bucket, charge)
    bucket.ahead_earn, bucket.ahead_part = bucket.ahead_earn + charge.earn, bucket.ahead_part + charge.earn_part
    if bucket.ahead_part >= bucket.over then
        bucket.ahead_earn, bucket.ahead_part = bucket.ahead_earn + 1, bucket.ahead_part - bucket.over
    end
end

function token.spend(bucket, charge)
    local at, part = token.after(bucket, charge.earn, charge.earn_part)
    if at > bucket.deepest or at == bucket.deepest and part > bucket.deepest_part then
        at, part = bucket.deepest, bucket.deepest_part
    end
    bucket.at, bucket.part = at, part
end

function token.refund(bucket, charge)
    local at, part = token.after(bucket, 0, 0)
    bucket.at, bucket.part = at, part
    local latest = now + charge.fill
    if latest < at or latest == at and charge.fill_part < part or now < charge.paid_at then
        return
    end
    local unpaid, unpaid_part = charge.earn - (now - charge.paid_at), charge.earn_part
    if unpaid < 0 then
        return
    end
    at, part = at - unpaid, part - unpaid_part
    if part < 0 then
        at, part = at - 1, part + bucket.over
    end
    if at < now then
        at, part = now, 0
    end
    bucket.at, bucket.part = at, part
end

function token.write(bucket, charge)
    local at, full_at = bucket.at, bucket.at
    if bucket.part > 0 then
        at, full_at = at + 1, format('%.0f %.0f/%.0f', at, bucket.part, bucket.over)
    end
    if readable == 1 then
        local tokens = charge.capacity * (1 - (at - now) / (charge.fill + charge.fill_part / charge.over))
        call('HSET', bucket.key, 'full_at', full_at, 'tokens', format('%.3f', tokens), 'lastRefill', (now - now % 1000) / 1000)
    else
        call('HSET', bucket.key, 'full_at', full_at)
    end
end

function token.gone_at(bucket)
    return bucket.part > 0 and bucket.at + 1 or bucket.at
end

-- ═══ leaky bucket as a queue ═══
-- A token bucket whose charges fit only if their turn comes before the asker's patience ends.

local queue = setmetatable({}, { __index = token })

function queue.fits(bucket, charge)
    local at, part = token.after(bucket, bucket.ahead_earn, bucket.ahead_part)
    local patient = now + charge.patience
    return (at < patient or at == patient and part == 0) and token.fits(bucket, charge)
end

-- ═══ token bucket, refilled in steps ═══
-- at: the last step, or the charge that found the bucket full. a: units that have not come back yet.

local stepped = {}

function stepped.load(bucket)
    local state = pcall('HMGET', bucket.key, 'since', 'spent')
    local at, a = whole(state[1]), count(state[2])
    if at and a then
        bucket.at, bucket.a, bucket.found = at, a, true
    end
end

function stepped.prepare(bucket, charge)
    pull_back(bucket, charge.window)
end

function stepped.state(bucket)
    return bucket.at, bucket.a, 0, 0
end

-- The last step and the units that are spent, with all steps taken that are due.
function stepped.settled(bucket, charge)
    local passed = max(now - bucket.at, 0)
    local steps = (passed - passed % charge.window) / charge.window
    local spent = max(bucket.a - steps * charge.units, 0)
    if spent == 0 then
        return now, 0
    end
    return bucket.at + steps * charge.window, spent
end

function stepped.fits(bucket, charge)
    local _, spent = stepped.settled(bucket, charge)
    return spent + bucket.ahead + charge.cost <= charge.capacity
end

function stepped.spend(bucket, charge)
    local since, spent = stepped.settled(bucket, charge)
    bucket.at, bucket.a = since, spent + counted(spent, charge)
end

function stepped.refund(bucket, charge)
    local since, spent = stepped.settled(bucket, charge)
    bucket.at, bucket.a = since, spent
    if not forfeits(spent, charge) then
        local repaid = ceil(max(since - charge.paid_at, 0) / charge.window) * charge.units
        bucket.a = max(spent - max(charge.cost - repaid, 0), 0)
    end
end

function stepped.write(bucket)
    call('HSET', bucket.key, 'since', bucket.at, 'spent', bucket.a)
end

function stepped.gone_at(bucket, charge)
    return bucket.at + ceil(bucket.a / charge.units) * charge.window
end

-- ═══ sliding window counter ═══
-- at: when the current window began. a, b: units spent in the window before it, and in it.

local counter = {}

function counter.load(bucket, charge)
    local state = pcall('HMGET', bucket.key, 'window', 'opened_at', 'previous', 'current')
    local at, a, b = whole(state[2]), count(state[3]), count(state[4])
    if tonumber(state[1]) == charge.window and at and a and b then
        bucket.at, bucket.a, bucket.b, bucket.found = at, a, b, true
    end
end

counter.prepare = stepped.prepare

function counter.state(bucket)
    return bucket.at, bucket.a, bucket.b, 0
end

function counter.settled(bucket, charge)
    local next_at = bucket.at + charge.window
    if now < next_at then
        return bucket.at, bucket.a, bucket.b
    elseif now < next_at + charge.window then
        return next_at, bucket.b, 0
    end
    return now - now % charge.window, 0, 0
end

function counter.fits(bucket, charge)
    local at, previous, current = counter.settled(bucket, charge)
    local passed = max(now - at, 0)
    local elapsed = (passed - passed % charge.tick) / charge.tick
    local weight = previous * max(charge.ticks - elapsed, 0) + current * charge.ticks
    return weight <= (charge.capacity - bucket.ahead - charge.cost) * charge.ticks
end

function counter.spend(bucket, charge)
    local at, previous, current = counter.settled(bucket, charge)
    bucket.at, bucket.a, bucket.b = at, previous, current + counted(current, charge)
end

function counter.refund(bucket, charge)
    local at, previous, current = counter.settled(bucket, charge)
    if not forfeits(current, charge) and at <= charge.paid_at and charge.paid_at - at < charge.window then
        current = max(current - charge.cost, 0)
    end
    bucket.at, bucket.a, bucket.b = at, previous, current
end

function counter.write(bucket, charge)
    call('HSET', bucket.key, 'window', charge.window, 'opened_at', bucket.at, 'previous', bucket.a, 'current', bucket.b)
end

function counter.gone_at(bucket, charge)
    return bucket.at + (bucket.b > 0 and 2 or bucket.a > 0 and 1 or 0) * charge.window
end

-- ═══ fixed window ═══
-- at: when the window began. a: units spent in it.

local fixed = {}

function fixed.load(bucket, charge)
    local state = pcall('HMGET', bucket.key, 'window', 'opened_at', 'count')
    local at, a = whole(state[2]), count(state[3])
    if tonumber(state[1]) == charge.window and at and a then
        bucket.at, bucket.a, bucket.found = at, a, true
    end
end

fixed.prepare, fixed.state = stepped.prepare, stepped.state

function fixed.settled(bucket, charge)
    local opening = charge.first_hit and now or now - now % charge.window
    local ends_at = bucket.at + charge.window
    if bucket.a == 0 then
        return opening, 0
    elseif now < ends_at then
        return bucket.at, bucket.a
    end
    return max(opening, ends_at), 0
end

function fixed.fits(bucket, charge)
    local _, count = fixed.settled(bucket, charge)
    return count + bucket.ahead + charge.cost <= charge.capacity
end

function fixed.spend(bucket, charge)
    local at, count = fixed.settled(bucket, charge)
    bucket.at, bucket.a = at, count + counted(count, charge)
end

function fixed.refund(bucket, charge)
    local at, count = fixed.settled(bucket, charge)
    if not forfeits(count, charge) and at <= charge.paid_at and charge.paid_at - at < charge.window then
        count = max(count - charge.cost, 0)
    end
    bucket.at, bucket.a = at, count
end

function fixed.write(bucket, charge)
    call('HSET', bucket.key, 'window', charge.window, 'opened_at', bucket.at, 'count', bucket.a)
end

function fixed.gone_at(bucket, charge)
    return bucket.at + (bucket.a > 0 and 1 or 0) * charge.window
end

-- ═══ sliding window log ═══
-- A list: how many units its charges have together, then the charges. It may be long, so it is read by the page
-- and written at once. In the reply it is: how long until the charge fits (0 now, -1 never), the units that were
-- counted, the units that then are spent, and the oldest charge that counts (-1 if none).

local log = {}
local PAGE = 64

local function entry_text(at, cost)
    return cost == 1 and at or format('%.0f %.0f', at, cost)
end

local function entry_of(text)
    local at = whole(text)
    if at then
        return at, 1
    end
    local at, cost = text:match('^(%d+) (%d+)$')
    return whole(at) or 0, count(cost) or 1
end

local function keep(bucket, page, from)
    for i = from, #page do
        bucket.n = bucket.n + 1
        bucket.ats[bucket.n], bucket.costs[bucket.n] = entry_of(page[i])
    end
end

-- The n-th charge from the oldest, if there are so many.
local function entry(bucket, n)
    while bucket.n < n and not bucket.complete do
        local page = call('LRANGE', bucket.key, bucket.n + 1, bucket.n + PAGE)
        bucket.complete = #page < PAGE
        keep(bucket, page, 1)
    end
    return bucket.ats[n], bucket.costs[n]
end

function log.load(bucket)
    bucket.ats, bucket.costs, bucket.n, bucket.spent, bucket.found = {}, {}, 0, 0, nil
    local page = pcall('LRANGE', bucket.key, 0, PAGE)
    local spent = whole(page[1])
    bucket.complete = #page <= PAGE
    if spent then
        keep(bucket, page, 2)
        bucket.spent, bucket.found = spent, true
    end
end

-- Mends, and counts the charges that have left the window.
function log.prepare(bucket, charge)
    bucket.newest_at, bucket.newest_cost = nil, nil
    if bucket.n > 0 then
        bucket.newest_at, bucket.newest_cost = entry_of(call('LINDEX', bucket.key, -1))
        if now + charge.window < bucket.newest_at then
            log.mend(bucket, charge)
        end
    end
    bucket.gone, bucket.left = 0, bucket.spent
    while true do
        local at, cost = entry(bucket, bucket.gone + 1)
        if not at then
            bucket.left = 0
            break
        elseif now - at < charge.window then
            break
        end
        bucket.gone, bucket.left = bucket.gone + 1, max(bucket.left - cost, 0)
    end
    if min_ttl > 0 and bucket.newest_at then
        renew(bucket.key, bucket.newest_at + charge.window)
    end
end

-- All that lies ahead of now was charged now.
function log.mend(bucket, charge)
    local n, ahead = 0, 0
    while true do
        local at, cost = entry(bucket, n + 1)
        if not at or now < at then
            break
        end
        n = n + 1
    end
    for i = n + 1, math.huge do
        local at, cost = entry(bucket, i)
        if not at then
            break
        end
        ahead = ahead + cost
    end
    call('LTRIM', bucket.key, 0, n)
    call('RPUSH', bucket.key, entry_text(now, ahead))
    renew(bucket.key, now + charge.window)
    log.load(bucket)
    bucket.newest_at, bucket.newest_cost = now, ahead
end

function log.fits(bucket, charge)
    return bucket.left + bucket.ahead + charge.cost <= charge.capacity
end

function log.state(bucket, charge, fits)
    local retry_after, n = 0, bucket.gone
    if not fits then
        local missing = bucket.left + bucket.ahead + charge.cost - charge.capacity
        retry_after = -1
        while missing > 0 and bucket.ahead + charge.cost <= charge.capacity do
            n = n + 1
            local at, cost = entry(bucket, n)
            if not at then
                break
            end
            retry_after, missing = max(at + charge.window - now, 1), missing - cost
        end
    end
    return retry_after, 0, bucket.left, entry(bucket, bucket.gone + 1) or -1
end

-- Lets go of charges that have left, and of the oldest while the newer ones are two limits deep by themselves. The
-- last one to go makes place for the units spent.
local function settle(bucket, spent, gone)
    if gone > 0 then
        call('LTRIM', bucket.key, gone, -1)
    end
    call('LSET', bucket.key, 0, spent)
end

function log.spend(bucket, charge)
    if bucket.stale then
        log.load(bucket)
        log.prepare(bucket, charge)
    end
    bucket.stale = true
    local gone, oldest_at, oldest_cost = bucket.gone, entry(bucket, bucket.gone + 1)
    local cost
    local newest_at = bucket.newest_at
    if newest_at and now <= newest_at then
        cost = counted(bucket.newest_cost, charge)
        call('LSET', bucket.key, -1, entry_text(newest_at, bucket.newest_cost + cost))
        if oldest_at == newest_at then
            oldest_cost = oldest_cost + cost
        end
    else
        cost = counted(0, charge)
        if cost == 0 then
            bucket.oldest_at = oldest_at or -1
            return 0
        end
        if not bucket.found then
            call('DEL', bucket.key)
            call('RPUSH', bucket.key, 0)
        end
        call('RPUSH', bucket.key, entry_text(now, cost))
        newest_at = now
        if not oldest_at then
            oldest_at, oldest_cost = now, cost
        end
    end
    local spent, deepest = bucket.left + cost, min(2 * charge.capacity, 4294967295)
    while oldest_at < newest_at and spent - oldest_cost >= deepest do
        spent, gone = spent - oldest_cost, gone + 1
        oldest_at, oldest_cost = entry(bucket, gone + 1)
        if not oldest_at or oldest_at == newest_at then
            oldest_at, oldest_cost = newest_at, 0
        end
    end
    settle(bucket, spent, gone)
    renew(bucket.key, newest_at + charge.window)
    bucket.left, bucket.oldest_at = spent, oldest_at
    return cost
end

function log.refund(bucket, charge)
    if not bucket.found then
        return
    end
    bucket.stale = true
    settle(bucket, bucket.left, bucket.gone)
    if forfeits(bucket.left, charge) then
        return
    end
    -- They are in order of time.
    local low, high = 1, call('LLEN', bucket.key) - 1
    while low <= high do
        local middle = (low + high - (low + high) % 2) / 2
        local at, cost = entry_of(call('LINDEX', bucket.key, middle))
        if at == charge.paid_at then
            local back = min(cost, charge.cost)
            if back == cost then
                call('LSET', bucket.key, middle, 'gone')
                call('LREM', bucket.key, 1, 'gone')
            else
                call('LSET', bucket.key, middle, entry_text(at, cost - back))
            end
            call('LSET', bucket.key, 0, bucket.left - back)
            return
        elseif at < charge.paid_at then
            low = middle + 1
        else
            high = middle - 1
        end
    end
end

-- ═══ decisions ═══

local kinds = { token, queue, stepped, counter, fixed, log }
local buckets, order = {}, {}
local reply, n_reply, n_keys = { now }, 1, 0

-- The bucket behind a key, loaded once.
local function bucket_of(key, kind, charge)
    local bucket = buckets[key]
    if not bucket or bucket.kind ~= kind then
        bucket = {
            key = key, kind = kind, at = 0, part = 0, over = 1, a = 0, b = 0,
            ahead = 0, ahead_earn = 0, ahead_part = 0,
        }
        kind.load(bucket, charge)
        buckets[key] = bucket
        order[#order + 1] = bucket
    elseif bucket.stale then
        kind.load(bucket, charge)
        bucket.stale = false
    end
    kind.prepare(bucket, charge)
    return bucket
end

while position <= #frame do
    local charges, n, vetoed = {}, 0, false
    n_reply = n_reply + 1
    local paid_at_reply = n_reply

    -- Weigh each.
    repeat
        local id, left, act, cost, capacity, over, p, p_part, q, q_part, r
        id, left, act, cost, capacity, over, p, p_part, q, q_part, r, position =
            struct.unpack('<BHBI4I4I4I8I4I8I4I8', frame, position)
        -- By kind: buckets earn (p) what they cost and fill (q), steps and windows count units (p) in a window (q).
        local charge = {
            act = act, cost = cost, capacity = capacity, over = over, earn = p, earn_part = p_part, fill = q, fill_part = q_part,
            units = p, tick = p, window = q, patience = r, ticks = r, paid_at = r, first_hit = r == 1,
        }
        n, n_keys = n + 1, n_keys + 1
        local kind = kinds[id]
        local bucket = bucket_of(KEYS[n_keys], kind, charge)
        charge.kind, charge.bucket = kind, bucket
        charges[n] = charge
        if act < 4 then
            local fits = cost == 0 or bucket.ahead + cost <= capacity and kind.fits(bucket, charge)
            reply[n_reply + 1], reply[n_reply + 2], reply[n_reply + 3], reply[n_reply + 4] = kind.state(bucket, charge, fits)
            charge.reply, n_reply = n_reply, n_reply + 4
            charge.spends = act == 2 or fits and act < 2
            vetoed = vetoed or not fits and (act == 0 or act == 3)
            if act == 0 or act == 2 or act == 1 and fits then
                bucket.ahead = bucket.ahead + cost
                if kind.claim then
                    kind.claim(bucket, charge)
                end
            end
        end
    until left == 0

    -- Spend all, or none.
    for i = 1, n do
        local charge = charges[i]
        local bucket, kind = charge.bucket, charge.kind
        bucket.ahead, bucket.ahead_earn, bucket.ahead_part = 0, 0, 0
        bucket.charge = charge
        if charge.act == 4 then
            kind.refund(bucket, charge)
            bucket.dirty = bucket.dirty or bucket.found
        elseif charge.spends and not vetoed then
            reply[charge.reply + 2] = kind.spend(bucket, charge) or reply[charge.reply + 2]
            bucket.dirty = true
        end
        if bucket.stale and charge.act < 4 then
            reply[charge.reply + 3], reply[charge.reply + 4] = bucket.left, bucket.oldest_at
        end
    end
    reply[paid_at_reply] = vetoed and 0 or 1
end

-- Write.
for i = 1, #order do
    local bucket = order[i]
    local key, kind, charge = bucket.key, bucket.kind, bucket.charge
    if kind.write and (bucket.dirty or min_ttl > 0 and bucket.found) then
        if bucket.dirty then
            if not bucket.found then
                call('DEL', key) -- what may be there is of another kind
            end
            kind.write(bucket, charge)
        end
        renew(key, kind.gone_at(bucket, charge))
    end
end

return reply
