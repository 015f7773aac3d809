## Reads a register of another work-item of the sub-group: by OpenCL's sub_group_shuffle
## (cl_khr_subgroup_shuffle, or its predecessor cl_intel_subgroups), or by NVIDIA's shfl.sync in inline PTX
## (PTX ISA, "Data Movement and Conversion Instructions: shfl.sync").
##
## Context: element. `function` is DeviceTraits.shuffle.

<%def name="functions(function)" filter="trim">
% if function == "shfl.sync":
static inline uint shuffle_word(const uint x, const int lane)
{
    uint result;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(result) : "r"(x), "r"(lane));
    return result;
}

% endif
// The x of work-item number `lane` of the sub-group.
static inline element shuffle(const element x, const int lane)
{
% if function == "shfl.sync":
    ${by_words()}
% elif element.parts == 2:
    return (element)(${function}(x.x, lane), ${function}(x.y, lane));
% else:
    return ${function}(x, lane);
% endif
}
</%def>

<%def name="by_words()" filter="trim">
<% count = element.bytes // 4 %>
<% type = element.vector(1) %>
% if element.bytes == 2:
    // NVIDIA's compiler has no as_half.
    const ushort bits = shuffle_word(*(const ushort *)&x, lane);
    return *(const element *)&bits;
% elif count == 1:
    return as_${type}(shuffle_word(as_uint(x), lane));
% else:
    const uint${count} words = as_uint${count}(x);
    return as_${type}((uint${count})(${", ".join(f"shuffle_word(words.s{word}, lane)" for word in range(count))}));
% endif
</%def>
