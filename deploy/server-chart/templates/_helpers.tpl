{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.secret" -}}
{{ .Values.database.secret | default (printf "%s-database" .Release.Name) }}
{{- end }}

{{- define "penstock.env" -}}
- name: PENSTOCK_STORE
  value: {{ if .Values.database.enabled }}{{ printf "postgresql://penstock@%s-database/penstock" .Release.Name | quote }}{{ else }}{{ required "database.url: say where your PostgreSQL is, or set database.enabled" .Values.database.url | quote }}{{ end }}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "penstock.secret" . }}, key: password}}
- name: PENSTOCK_HOME
  value: /var/lib/penstock/home
{{- with .Values.artifacts }}
- name: PENSTOCK_ARTIFACTS
  value: {{ . | quote }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "penstock.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . | indent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "penstock.container" -}}
image: {{ .Values.image | quote }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "penstock.volumes" -}}
- name: home
  persistentVolumeClaim:
    claimName: {{ .Values.home.existingClaim | default (printf "%s-home" .Release.Name) }}
- name: tmp
  emptyDir: {}
{{- end }}
