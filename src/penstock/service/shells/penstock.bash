# Completion of the penstock command in bash. Written by `penstock completion bash`.
_penstock() {
    local line value help word cur prefix offer
    COMPREPLY=()
    line=${COMP_LINE:0:COMP_POINT}
    while IFS=$'\t' read -r value help; do
        case $value in
        :word=*)
            # The whole word as penstock sees it. bash cuts words at = and :, and replaces only the last piece.
            word=${value#:word=}
            cur=${word##*[=:]}
            prefix=${word%"$cur"}
            ;;
        :files) compopt -o default 2>/dev/null; compopt -o filenames 2>/dev/null
            [ ${#COMPREPLY[@]} -eq 0 ] || COMPREPLY+=($(compgen -f -- "$cur")) ;;
        :folders) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- "$cur")) ;;
        *)
            offer=${value#"$prefix"}
            COMPREPLY+=("$offer")
            case $offer in *[=/:]) compopt -o nospace 2>/dev/null ;; esac
            ;;
        esac
    done < <(_PENSTOCK_COMPLETE=bash _PENSTOCK_LINE=$line "$1" 2>/dev/null)
}
complete -F _penstock penstock
