# Completion of naradctl for bash; needs nothing but bash.

# Mount points of naradfs.
_naradctl_mounts() {
    local device point type rest
    while read -r device point type rest; do
        [ "$type" = fuse.naradfs ] && printf '%b\n' "$point"
    done 2>/dev/null </proc/self/mounts
}

# Topics of the mount in the word before, or of the only mount.
_naradctl_topics() {
    local mnt=$1
    [ -d "$mnt/topics" ] || mnt=$(_naradctl_mounts)
    [ -d "$mnt/topics" ] || return
    local topic
    for topic in "$mnt"/topics/*/; do
        [ -d "$topic" ] || continue
        topic=${topic%/}
        printf '%s\n' "${topic##*/}"
    done
}

# Settings of a topic, given as MNT TOPIC or, of the only mount, as TOPIC.
_naradctl_settings() {
    local mnt=$1 topic=$2 key value
    [ -d "$mnt/topics" ] || { topic=$mnt mnt=$(_naradctl_mounts); }
    while IFS='=' read -r key value; do
        printf '%s=\n' "$key"
    done 2>/dev/null <"$mnt/topics/$topic/config"
}

# TOPIC/pNNNNN of a data directory.
_naradctl_partitions() {
    local dir
    for dir in "$1"/topics/*/p[0-9][0-9][0-9][0-9][0-9]; do
        [ -d "$dir" ] && printf '%s\n' "${dir#"$1"/topics/}"
    done
}

_naradctl() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
    local verbs="check dump export import topics describe config ctl top delete copy bench"
    local options="--help" words="" files="" i n=0 first="" second=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$verbs --help --version" -- "$word")
        return
    fi
    # which argument this is, options left out
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --base | --delay | -d | --number | -n | --beside | -b | --seconds | -s) i=$((i + 1)) ;;
        -*) ;;
        *)
            [ $n -eq 0 ] && first=${COMP_WORDS[i]}
            [ $n -eq 1 ] && second=${COMP_WORDS[i]}
            n=$((n + 1))
            ;;
        esac
    done
    case $verb in
    check) options+=" --json" files=d ;;
    dump) options+=" --json --payload --base" files=f ;;
    export | import)
        options+=" --quiet"
        case $n in
        0) files=d ;;
        1) words=$(_naradctl_partitions "${first%/}") ;;
        *) words=- files=f ;;
        esac
        ;;
    topics) options+=" --json" files=d words=$(_naradctl_mounts) ;;
    top) options+=" --delay --number" files=d words=$(_naradctl_mounts) ;;
    copy)
        options+=" --follow --jobs --batch --quiet --verbose" files=d
        [ $n -eq 0 ] && words=$(_naradctl_topics "")
        ;;
    bench) options+=" --json --seconds --beside" files=d words=$(_naradctl_mounts) ;;
    describe | delete)
        [ "$verb" = describe ] && options+=" --json" || options+=" --yes"
        words=$(_naradctl_topics "$first")
        [ $n -eq 0 ] && words+=$'\n'$(_naradctl_mounts) && files=d
        ;;
    config)
        options+=" --json"
        if [ $n -eq 0 ]; then
            words=$(_naradctl_topics "")$'\n'$(_naradctl_mounts) files=d
        elif [ $n -eq 1 ] && [ -d "$first/topics" ]; then
            words=$(_naradctl_topics "$first")
        else
            words=$(_naradctl_settings "$first" "$second")
            compopt -o nospace 2>/dev/null
        fi
        ;;
    ctl)
        if [ $n -eq 0 ]; then
            words=$(_naradctl_topics "")$'\n'$(_naradctl_mounts) files=d
        elif [ $n -eq 1 ] && [ -d "$first/topics" ]; then
            words=$(_naradctl_topics "$first")
        else
            words="reopen roll trim seek partitions delete"
            [ "$before" = seek ] && words="start end"
        fi
        ;;
    *) return ;;
    esac
    case $before in
    --beside | -b) words="" files=d options="" ;;
    --base | --delay | -d | --number | -n | --seconds | -s | --jobs | -J | --batch) return ;;
    esac
    [[ $word == -* ]] && words=$options files=""
    local IFS=$' \n'
    mapfile -t COMPREPLY < <(
        compgen -W "$words" -- "$word"
        [ -n "$files" ] && compgen -"$files" -- "$word"
    )
    [ -n "$files" ] && compopt -o filenames 2>/dev/null
    return 0
}

complete -F _naradctl naradctl
